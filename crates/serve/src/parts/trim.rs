//! Memory that a burst has left.

use std::collections::VecDeque;

/// Gives the memory of a list back that was much longer once.
pub(crate) fn trim<T>(list: &mut Vec<T>) {
    if list.capacity() > 4 * list.len() + 256 {
        list.shrink_to(2 * list.len());
    }
}

pub(crate) fn trim_queue<T>(list: &mut VecDeque<T>) {
    if list.capacity() > 4 * list.len() + 256 {
        list.shrink_to(2 * list.len());
    }
}
