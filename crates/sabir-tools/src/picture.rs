//! Pictures, as a model gets to see them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use imagesize::ImageType;
use sabir_call::Image;

use crate::text;

/// A larger one is refused by providers, who measure it in base64: 5 MiB.
pub const MAX_BYTES: usize = (5 << 20) / 4 * 3;
/// The same, of width and height.
const MAX_SIDE_PIXELS: usize = 8000;

/// A picture that can be shown.
#[derive(Debug)]
pub(crate) struct LoadedPicture {
    /// PNG, say.
    pub(crate) format: &'static str,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) image: Image,
}

/// The kind of picture that a file begins as: what people call it, and its media type.
pub(crate) fn detect_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    match imagesize::image_type(bytes).ok()? {
        ImageType::Png => Some(("PNG", "image/png")),
        ImageType::Jpeg => Some(("JPEG", "image/jpeg")),
        ImageType::Gif => Some(("GIF", "image/gif")),
        ImageType::Webp => Some(("WebP", "image/webp")),
        _ => None,
    }
}

/// A whole file as a picture that any model with eyes can be shown: PNG, JPEG, GIF or WebP by its bytes.
///
/// # Errors
/// What it is instead, or why it cannot be shown, in words.
pub fn load_picture(bytes: &[u8]) -> Result<Image, String> {
    let format = detect_format(bytes).ok_or("it is no PNG, JPEG, GIF or WebP image")?;
    LoadedPicture::new(format, bytes).map(|picture| picture.image)
}

/// The same of a file in base64.
///
/// # Errors
/// As for [`load_picture`], and where it is no base64.
pub fn decode_picture(base64: &str) -> Result<Image, String> {
    let bytes = STANDARD
        .decode(base64)
        .map_err(|error| format!("it is no base64: {error}"))?;
    load_picture(&bytes)
}

impl LoadedPicture {
    /// Takes the whole file. The error says why no model could be shown it: a picture that a provider refuses would make it
    /// refuse every request from then on.
    pub(crate) fn new(
        (format, media_type): (&'static str, &str),
        bytes: &[u8],
    ) -> Result<Self, String> {
        if bytes.len() > MAX_BYTES {
            return Err(format!(
                "at most {} can be",
                text::count_bytes(MAX_BYTES as u64)
            ));
        }
        let size = imagesize::blob_size(bytes).map_err(|_| "it is broken".to_owned())?;
        if size.width == 0 || size.height == 0 {
            return Err("it is empty".to_owned());
        }
        if size.width > MAX_SIDE_PIXELS || size.height > MAX_SIDE_PIXELS {
            return Err(format!(
                "no side may have more than {MAX_SIDE_PIXELS} pixels"
            ));
        }
        let image = Image {
            media_type: media_type.to_owned(),
            data: STANDARD.encode(bytes),
        };
        Ok(Self {
            format,
            width: size.width,
            height: size.height,
            image,
        })
    }
}
