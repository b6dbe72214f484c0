//! Checks pictures and encodes them for a model.
//!
//! A picture that a provider refuses would make it refuse every request from then on, because the
//! picture stays in the history. The limits of the providers are therefore checked beforehand.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use imagesize::ImageType;
use sabir_call::Image;

use crate::text;

/// The largest picture file in bytes. Providers accept 5 MiB, measured in base64, which is a third
/// longer.
pub const MAX_IMAGE_BYTES: usize = (5 << 20) / 4 * 3;
/// The width and height that providers accept.
const MAX_SIDE_PIXELS: usize = 8000;

/// A picture that can be shown.
#[derive(Debug)]
pub(crate) struct LoadedImage {
    /// The format.
    pub(crate) format: ImageFormat,
    /// The width in pixels.
    pub(crate) width: usize,
    /// The height in pixels.
    pub(crate) height: usize,
    /// The encoded picture.
    pub(crate) image: Image,
}

/// A picture format that every provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageFormat {
    /// The usual name, such as `PNG`.
    pub(crate) name: &'static str,
    media_type: &'static str,
}

/// The reason why a picture cannot be shown to a model. The text continues a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageLoadError {
    /// The bytes begin like no supported format.
    #[error("it is not a PNG, JPEG, GIF or WebP image")]
    UnknownFormat,
    /// The text is not valid base64.
    #[error("it is not base64: {0}")]
    InvalidBase64(#[from] base64::DecodeError),
    /// The file is larger than [`MAX_IMAGE_BYTES`].
    #[error("at most {} can be", text::count_bytes(MAX_IMAGE_BYTES as u64))]
    TooLarge,
    /// The file has no readable header.
    #[error("it is broken")]
    Broken,
    /// The width or height is zero.
    #[error("it is empty")]
    Empty,
    /// The width or height exceeds what providers accept.
    #[error("no side may have more than {MAX_SIDE_PIXELS} pixels")]
    TooManyPixels,
}

impl ImageFormat {
    /// Detects the format of a file by its first bytes; `None` if it is not a supported picture.
    pub(crate) fn detect(bytes: &[u8]) -> Option<Self> {
        let (name, media_type) = match imagesize::image_type(bytes).ok()? {
            ImageType::Png => ("PNG", "image/png"),
            ImageType::Jpeg => ("JPEG", "image/jpeg"),
            ImageType::Gif => ("GIF", "image/gif"),
            ImageType::Webp => ("WebP", "image/webp"),
            _ => return None,
        };
        Some(Self { name, media_type })
    }
}

/// Loads a picture from the bytes of a file: PNG, JPEG, GIF or WebP, detected by the bytes.
///
/// # Errors
/// When the file is no such picture, or exceeds the limits of providers.
pub fn image_from_bytes(bytes: &[u8]) -> Result<Image, ImageLoadError> {
    let format = ImageFormat::detect(bytes).ok_or(ImageLoadError::UnknownFormat)?;
    LoadedImage::from_bytes(format, bytes).map(|picture| picture.image)
}

/// Loads a picture from the bytes of a file in base64.
///
/// # Errors
/// As for [`image_from_bytes`], and for text that is not base64.
pub fn image_from_base64(base64: &str) -> Result<Image, ImageLoadError> {
    image_from_bytes(&STANDARD.decode(base64)?)
}

impl LoadedImage {
    /// Checks and encodes a whole file.
    pub(crate) fn from_bytes(format: ImageFormat, bytes: &[u8]) -> Result<Self, ImageLoadError> {
        if bytes.len() > MAX_IMAGE_BYTES {
            return Err(ImageLoadError::TooLarge);
        }
        let size = imagesize::blob_size(bytes).map_err(|_| ImageLoadError::Broken)?;
        // Only the header is read; the pixels are never decoded.
        if size.width == 0 || size.height == 0 {
            return Err(ImageLoadError::Empty);
        }
        if size.width > MAX_SIDE_PIXELS || size.height > MAX_SIDE_PIXELS {
            return Err(ImageLoadError::TooManyPixels);
        }
        let image = Image {
            media_type: format.media_type.to_owned(),
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
