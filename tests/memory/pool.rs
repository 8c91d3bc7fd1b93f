//! Buffers of a pool: a message costs no allocation once the pool has what it needs.

use windlass::buf_pool::BufPool;

use super::*;

#[test]
fn buffers_of_a_pool_are_allocated_once() {
    let _alone = alone();
    let world = Real::open(&CALM);
    let mut watcher = world.watcher(Watcher::builder());
    let [client, server] =
        <[Handle; 2]>::from(world.pair()).map(|end| watcher.attach(end).expect("room"));
    let mut done = Completions::new();
    let pool = BufPool::new(64 << 10, 1 << 20);
    expect_none("messages in buffers of a pool", |round| {
        // Every fourth message has outgrown its first buffer.
        let mut text = pool.take(if round % 4 == 0 { 100 } else { 1000 });
        pool.append(&mut text, &[7; 1000]);
        watcher.submit(Op::write(client, text)).expect("room");
        watcher.submit(Op::read_exact(server, pool.take(1000), 1000)).expect("room");
        let mut left = 2;
        while left > 0 {
            assert!(watcher.wait_timeout(&mut done, BOUND).expect("a wait") > 0, "a message");
            for c in done.drain(..) {
                left -= 1;
                match c.result.expect("nothing fails") {
                    Done::Written { buf, .. } | Done::Read(buf) => pool.give(buf),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    let counters = pool.counters();
    assert_eq!(counters.outstanding(), 0);
    assert!(counters.allocated <= 4, "{counters:?}");
}
