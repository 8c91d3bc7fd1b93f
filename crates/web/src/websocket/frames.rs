//! Frames that are written.

use windlass::Buf;
use windlass_serve::{Refusal, Refused};
use windlass_websocket::{FrameHead, mask};

use super::carrier::Carrier;
use super::message::Payload;
use super::session::{SMALL, Session};

impl Session {
    /// Writes a frame: a small one as a copy, and a large one in its own memory. A client masks
    /// that if no other owner has it, and a copy otherwise. The payload comes back without the
    /// mask.
    #[inline]
    pub(super) fn write_frame(
        &mut self,
        carrier: &mut dyn Carrier,
        head: FrameHead,
        payload: Payload,
    ) -> Result<(), (Payload, Refusal)> {
        let key = self.key(carrier);
        let head = key.map_or(head, |key| head.masked(key));
        let mut bytes = [0; FrameHead::MOST];
        let size = head.write(&mut bytes);
        if payload.len() <= SMALL {
            let mut out = std::mem::take(&mut carrier.sockets().out);
            out.clear();
            out.extend_from_slice(&bytes[..size]);
            out.extend_from_slice(&payload);
            if let Some(key) = key {
                mask(key, &mut out[size..]);
            }
            let written = carrier.write_slice(&out);
            carrier.sockets().out = out;
            return written.map_err(|reason| (payload, reason));
        }
        let payload = masked(payload.into_buf(), key);
        let frame = Buf::list([Buf::from(bytes[..size].to_vec()), payload]);
        carrier.write(frame).map_err(|Refused { value, reason }| {
            let payload = value.into_parts().nth(1).unwrap_or_default();
            (masked(payload, key).into(), reason)
        })
    }
}

/// Puts a mask on bytes, or takes it off: in place, or on a copy if others have them, too.
fn masked(bytes: Buf, key: Option<[u8; 4]>) -> Buf {
    let Some(key) = key else { return bytes };
    match bytes.into_lease_mut() {
        Ok(mut lease) => {
            mask(key, &mut lease);
            lease.into()
        }
        Err(bytes) => {
            let mut bytes = bytes.into_vec();
            mask(key, &mut bytes);
            bytes.into()
        }
    }
}
