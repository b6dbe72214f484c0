//! Texts that cross the boundary: borrowed from the caller, or given to them.

use super::CallFailure;

/// A text that belongs to the caller. It is UTF-8 and ends with a zero byte, which `length` does not count.
#[repr(C)]
#[derive(Debug)]
pub struct SabirText {
    /// The bytes; null if there is no text.
    pub data: *mut u8,
    /// The number of bytes.
    pub length: usize,
}

impl SabirText {
    /// Gives a text to the caller, who must free it.
    ///
    /// # Safety
    /// `out` is null or valid for writing.
    pub(crate) unsafe fn write_to(out: *mut Self, text: String) {
        if out.is_null() {
            return;
        }
        let length = text.len();
        let mut bytes = text.into_bytes();
        bytes.push(0);
        // A boxed slice has no spare capacity, so its length is enough to free it.
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        let data = bytes.cast();
        // SAFETY: promised by the caller.
        unsafe { out.write(Self { data, length }) };
    }

    /// Frees a text and makes it empty.
    ///
    /// # Safety
    /// As for [`super::sabir_text_free`].
    pub(crate) unsafe fn free(text: *mut Self) {
        // SAFETY: promised by the caller.
        let Some(text) = (unsafe { text.as_mut() }) else {
            return;
        };
        if text.data.is_null() {
            return;
        }
        let bytes = std::ptr::slice_from_raw_parts_mut(text.data, text.length + 1);
        // SAFETY: `write_to` made it from a boxed slice of this length, and the caller changed
        // nothing.
        drop(unsafe { Box::from_raw(bytes) });
        text.data = std::ptr::null_mut();
        text.length = 0;
    }
}

/// Borrows bytes of the caller. Null is an empty text if the length is 0.
///
/// # Safety
/// `data` is valid for `length` bytes and does not change while the result is used, or is null.
pub(crate) unsafe fn borrow_bytes<'a>(
    data: *const u8,
    length: usize,
    name: &'static str,
) -> Result<&'a [u8], CallFailure> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallFailure::NullPointer(name)),
        // SAFETY: promised by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(data, length) }),
    }
}

/// Borrows a text of the caller.
///
/// # Safety
/// As for [`borrow_bytes`].
pub(crate) unsafe fn borrow_text<'a>(
    data: *const u8,
    length: usize,
    name: &'static str,
) -> Result<&'a str, CallFailure> {
    // SAFETY: promised by the caller.
    let bytes = unsafe { borrow_bytes(data, length, name)? };
    std::str::from_utf8(bytes).map_err(|error| CallFailure::InvalidUtf8 {
        name,
        at: error.valid_up_to(),
    })
}
