//! Loads and checks the images of a message, from files or base64, before any request is sent.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sabir_call::Image;
use sabir_tools::MAX_IMAGE_BYTES;
use serde::Deserialize;

use crate::config::ResolvedModel;
use crate::error::SessionError;

/// The most base64 bytes in all images of one message: they must fit into one record of the journal, and into one request.
const MAX_TOTAL_BYTES: usize = 20 << 20;

/// The support of a model for images, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSupport {
    /// The model reads images, or nothing is known about it.
    Supported,
    /// The model with this name reads no images.
    Unsupported(String),
}

/// The support for images of the model that a task asks now. It changes with the mode of the task; clones share it.
#[derive(Debug, Clone)]
pub struct CurrentImageSupport(Arc<Mutex<ImageSupport>>);

impl Default for CurrentImageSupport {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(ImageSupport::Supported)))
    }
}

impl CurrentImageSupport {
    /// Returns the support of the present model.
    #[must_use]
    pub fn get(&self) -> ImageSupport {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces it, because the model changed.
    pub(crate) fn set(&self, support: ImageSupport) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = support;
    }
}

/// An image in the JSON of a program: the path of a file, or the file in base64.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum ImageInput {
    /// A file on this machine.
    File {
        /// The path, relative to the current folder of the process.
        path: PathBuf,
    },
    /// The content of a file.
    Data {
        /// The stated media type, which must match the content.
        media_type: String,
        /// The content in base64, without line breaks.
        data: String,
    },
}

/// The reason why an image cannot go with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The model with this name reads no images.
    #[error(
        "the model {0} reads no pictures, as far as is known; `images = true` under [[models]] in config.toml says otherwise"
    )]
    Unsupported(String),
    /// All images of the message are too large together; holds their size in base64, in bytes.
    #[error(
        "the pictures of one message may take {} MiB in base64, and these take {}: show fewer at a time",
        MAX_TOTAL_BYTES >> 20,
        .0 >> 20
    )]
    TooLarge(usize),
    /// A file cannot be read, or is not a supported image.
    #[error("the picture {} cannot be shown: {reason}", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The reason, for the user.
        reason: String,
    },
    /// The text is not base64, or the bytes are not a supported image.
    #[error("a picture of the message cannot be shown: {0}")]
    Data(String),
    /// The content is of another type than was stated.
    #[error("a picture of the message is {found}, not {stated}")]
    OtherType {
        /// The media type of the content.
        found: String,
        /// The stated media type.
        stated: String,
    },
}

impl From<ImageError> for SessionError {
    fn from(error: ImageError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl ImageSupport {
    /// Returns the support of a model, by the catalogue and the user's own entries.
    pub fn for_model(chosen: &ResolvedModel) -> Self {
        match chosen.entry.as_ref().and_then(|entry| entry.images) {
            Some(false) => Self::Unsupported(chosen.name.clone()),
            _ => Self::Supported,
        }
    }

    /// Returns the images, if the model can get them.
    ///
    /// # Errors
    /// When the model reads no images, or they are too large together.
    pub fn check_images(&self, images: Vec<Image>) -> Result<Vec<Image>, ImageError> {
        // The limit applies to the base64, since the journal and the request contain that.
        let size: usize = images.iter().map(|image| image.data.len()).sum();
        match self {
            _ if images.is_empty() => Ok(images),
            Self::Unsupported(model) => Err(ImageError::Unsupported(model.clone())),
            Self::Supported if size > MAX_TOTAL_BYTES => Err(ImageError::TooLarge(size)),
            Self::Supported => Ok(images),
        }
    }

    /// Loads and checks images from files, for a task that has not begun.
    ///
    /// # Errors
    /// When a file is not a usable image, or the model cannot get the images.
    pub fn load_images(&self, paths: &[PathBuf]) -> Result<Vec<Image>, SessionError> {
        let images: Result<Vec<_>, _> = paths.iter().map(|path| load_image(path)).collect();
        Ok(self.check_images(images?)?)
    }
}

impl ImageInput {
    /// Loads the image. Its format is detected from the bytes, not from a file's name.
    ///
    /// # Errors
    /// When the file cannot be read, is not a supported image, or is not of the stated type.
    pub fn decode_image(&self) -> Result<Image, ImageError> {
        match self {
            Self::File { path } => load_image(path),
            Self::Data { media_type, data } => {
                let image = sabir_tools::image_from_base64(data)
                    .map_err(|reason| ImageError::Data(reason.to_string()))?;
                // A wrong type would be refused by the provider, in the middle of a task.
                if image.media_type == *media_type {
                    return Ok(image);
                }
                Err(ImageError::OtherType {
                    found: image.media_type,
                    stated: media_type.clone(),
                })
            }
        }
    }
}

/// Loads the image in a file.
///
/// # Errors
/// When the file cannot be read, is too large, or is not a supported image.
pub fn load_image(path: &Path) -> Result<Image, ImageError> {
    let wrong = |reason: &dyn std::fmt::Display| ImageError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
    let known = file.metadata().map_err(|error| wrong(&error))?;
    // A pipe would block here, and a folder or a device has no content of a known length.
    if !known.is_file() {
        return Err(wrong(&"it is not a file"));
    }
    // Reads one byte more than allowed, to detect a file that is too long.
    let most = u64::try_from(MAX_IMAGE_BYTES)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut bytes = Vec::new();
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    sabir_tools::image_from_bytes(&bytes).map_err(|error| wrong(&error))
}

/// Loads the image in the clipboard of the desktop, by the program of the desktop that prints it. Blocks until it has ended.
///
/// # Errors
/// When there is no such program or no image, or it is not a supported one.
pub fn load_clipboard_image() -> Result<Image, SessionError> {
    let bytes = sabir_workspace::read_clipboard_image(MAX_IMAGE_BYTES)
        .map_err(|error| SessionError::invalid(error.to_string()))?;
    sabir_tools::image_from_bytes(&bytes).map_err(|error| {
        SessionError::invalid(format!(
            "the picture in the clipboard cannot be used: {error}"
        ))
    })
}

/// Appends a line about each image to a message's text, for display.
pub fn with_image_notes(text: &str, images: &[Image]) -> String {
    let notes = images.iter().map(|image| {
        // Padding is counted, so the number may be two too high.
        let bytes = image.data.len() / 4 * 3;
        format!(
            "[a picture: {}, {}]",
            image.media_type,
            counted_bytes(bytes)
        )
    });
    let text = Some(text.to_owned()).filter(|text| !text.is_empty());
    text.into_iter().chain(notes).collect::<Vec<_>>().join("\n")
}

fn counted_bytes(bytes: usize) -> String {
    if bytes == 1 {
        "1 byte".to_owned()
    } else {
        format!("{bytes} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_decoded_from_files_or_base64() {
        let check = |json: &str, expected: Result<&str, &str>| {
            let given: ImageInput = serde_json::from_str(json).unwrap();
            let image = given.decode_image();
            match expected {
                Ok(media_type) => assert_eq!(image.unwrap().media_type, media_type),
                Err(words) => assert!(
                    image.clone().unwrap_err().to_string().contains(words),
                    "{image:?}"
                ),
            }
        };
        let gif = "R0lGODlhAQABAAAAACw=";
        check(
            &format!(r#"{{"media_type":"image/gif","data":"{gif}"}}"#),
            Ok("image/gif"),
        );
        check(
            &format!(r#"{{"media_type":"image/png","data":"{gif}"}}"#),
            Err("is image/gif, not image/png"),
        );
        check(
            r#"{"media_type":"image/png","data":"%"}"#,
            Err("not base64"),
        );
        check(
            r#"{"media_type":"image/png","data":"aGk="}"#,
            Err("not a PNG, JPEG, GIF or WebP"),
        );
        check(
            r#"{"path":"/no/such/file.png"}"#,
            Err("the picture /no/such/file.png cannot be shown"),
        );
        check(r#"{"path":"/"}"#, Err("cannot be shown"));
        for json in [r#"{"url":"https://x"}"#, r#"{"data":"x"}"#, r#""x.png""#] {
            assert!(serde_json::from_str::<ImageInput>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn unsupported_and_oversized_images_are_rejected() {
        let image = Image {
            media_type: "image/png".to_owned(),
            data: "A".repeat(15 << 20),
        };
        assert!(
            ImageSupport::Supported
                .check_images(vec![image.clone()])
                .is_ok()
        );
        assert!(
            ImageSupport::Supported
                .check_images(vec![image.clone(), image.clone()])
                .unwrap_err()
                .to_string()
                .contains("20 MiB")
        );
        let blind = ImageSupport::Unsupported("m".to_owned());
        assert!(
            blind
                .check_images(vec![image])
                .unwrap_err()
                .to_string()
                .contains("the model m reads no pictures")
        );
        assert_eq!(blind.check_images(Vec::new()), Ok(Vec::new()));
    }
}
