//! Defines objects (file contents and folders, identified by their SHA-256) and the nodes of a
//! folder tree.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::encoding::{ByteReader, ByteWriter};

/// The identity of an object: the SHA-256 of its bytes.
///
/// The hash is cryptographic, so that nobody can create a file that replaces another one in the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId([u8; 32]);

/// The state of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeNode {
    /// A regular file.
    File {
        /// The permission bits and the sticky bit; set-user-id and set-group-id are not kept.
        mode: u32,
        /// The size, in bytes.
        size: u64,
        /// The id of the content.
        content: ObjectId,
    },
    /// A symbolic link, not followed.
    Link {
        /// The target text of the link.
        target: PathBuf,
    },
    /// A folder.
    Folder {
        /// The permission bits, with set-group-id and the sticky bit.
        mode: u32,
        /// The id of the folder's tree; `None` if only the folder itself was scanned.
        tree: Option<ObjectId>,
    },
    /// A FIFO, a socket or a device; never read or restored.
    Special,
    /// Something whose content is not kept.
    Omitted {
        /// The reason.
        why: OmitReason,
        /// True for a folder.
        folder: bool,
        /// The size of a file, in bytes.
        size: u64,
        /// A hash of a file's size, time and inode, which shows that it changed.
        stamp: u64,
    },
}

/// A reason for not keeping content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmitReason {
    /// The file exceeds the limit for one file.
    TooLarge,
    /// The folder is ignored and holds more than the limit for ignored folders.
    Ignored,
    /// The checkpoint has reached its limit.
    CheckpointFull,
    /// It cannot be read.
    Unreadable,
    /// The folders are nested too deep.
    TooDeep,
    /// The folder is on another file system.
    OtherFileSystem,
}

/// The entries of a folder, sorted by the bytes of their names.
pub(super) type TreeEntries = Vec<(PathBuf, TreeNode)>;
/// The states of single paths, sorted; `None` for a path where nothing exists.
pub(super) type PathStates = Vec<(PathBuf, Option<TreeNode>)>;

/// The kind of an object, which tells how to find the objects it refers to.
/// The numbers of `to_number` are part of the format of packs and log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// The bytes of a file. It refers to nothing.
    Content,
    /// A folder. It refers to the contents and folders in it.
    Tree,
    /// The states of single paths. It refers to their contents and folders.
    PathStates,
}

impl ObjectId {
    /// Returns the id of these bytes.
    #[must_use]
    pub fn hash_of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the hash in the form in which it is stored.
    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Makes the id of a stored hash; it is verified when the object is read.
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Writes sixty-four hexadecimal digits.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

impl OmitReason {
    /// Returns the reason in words that complete `is …`.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::TooLarge => "larger than a file that is kept",
            Self::Ignored => "an ignored folder with more than such a folder may hold",
            Self::CheckpointFull => "beyond what one checkpoint may hold",
            Self::Unreadable => "not readable",
            Self::TooDeep => "in folders nested too deep",
            Self::OtherFileSystem => "on another file system",
        }
    }

    /// All reasons in the order of their stored numbers.
    const ALL: [Self; 6] = [
        Self::TooLarge,
        Self::Ignored,
        Self::CheckpointFull,
        Self::Unreadable,
        Self::TooDeep,
        Self::OtherFileSystem,
    ];
}

impl TreeNode {
    /// Returns true if two nodes are the same when this path is considered alone: of folders only
    /// the mode counts, since their entries have paths of their own.
    ///
    /// Omitted content is compared by its stamp alone. An omitted folder equals any folder, because its content is unknown.
    pub(super) fn is_same_entry(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder { mode, .. }, Self::Folder { mode: other, .. }) => mode == other,
            (
                Self::Omitted { folder: true, .. },
                Self::Omitted { folder: true, .. } | Self::Folder { .. },
            )
            | (Self::Folder { .. }, Self::Omitted { folder: true, .. }) => true,
            (Self::Omitted { stamp, .. }, Self::Omitted { stamp: other, .. }) => stamp == other,
            _ => self == other,
        }
    }

    /// Returns true for a folder, kept or not.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(
            self,
            Self::Folder { .. } | Self::Omitted { folder: true, .. }
        )
    }

    /// Encodes the node: a tag byte from 1 to 6, then the fields in order. Tag 0 is left for
    /// "nothing exists" in path states.
    fn write_to(&self, out: &mut ByteWriter) {
        match self {
            Self::File {
                mode,
                size,
                content,
            } => {
                out.write_u8(1);
                out.write_u32(*mode);
                out.write_u64(*size);
                out.write_id(*content);
            }
            Self::Link { target } => {
                out.write_u8(2);
                out.write_path(target);
            }
            Self::Folder { mode, tree } => {
                out.write_u8(if tree.is_some() { 3 } else { 4 });
                out.write_u32(*mode);
                if let Some(tree) = tree {
                    out.write_id(*tree);
                }
            }
            Self::Special => out.write_u8(5),
            Self::Omitted {
                why,
                folder,
                size,
                stamp,
            } => {
                out.write_u8(6);
                // The position in `ALL` is part of the format, so new reasons go to the end of it.
                out.write_u8(
                    OmitReason::ALL
                        .iter()
                        .position(|known| known == why)
                        .map_or(0, |at| at.to_le_bytes()[0]),
                );
                out.write_u8(u8::from(*folder));
                out.write_u64(*size);
                out.write_u64(*stamp);
            }
        }
    }

    /// Decodes a node; `None` for a tag or a reason that this version does not know.
    fn read_from(from: &mut ByteReader<'_>) -> Option<Self> {
        Some(match from.read_u8()? {
            1 => Self::File {
                mode: from.read_u32()?,
                size: from.read_u64()?,
                content: from.read_id()?,
            },
            2 => Self::Link {
                target: from.read_path()?,
            },
            3 => Self::Folder {
                mode: from.read_u32()?,
                tree: Some(from.read_id()?),
            },
            4 => Self::Folder {
                mode: from.read_u32()?,
                tree: None,
            },
            5 => Self::Special,
            6 => Self::Omitted {
                why: *OmitReason::ALL.get(usize::from(from.read_u8()?))?,
                folder: from.read_u8()? == 1,
                size: from.read_u64()?,
                stamp: from.read_u64()?,
            },
            _ => return None,
        })
    }
}

/// Encodes a folder.
///
/// The entries must be sorted: the id is the hash of these bytes, so the same folder in another
/// order would be another object.
pub(super) fn encode_tree(tree: &TreeEntries) -> Vec<u8> {
    let mut out = ByteWriter::default();
    for (name, node) in tree {
        out.write_bytes(name.as_os_str().as_bytes());
        node.write_to(&mut out);
    }
    out.0
}

/// Decodes a folder; `None` if the bytes are not exactly one.
pub(super) fn decode_tree(bytes: &[u8]) -> Option<TreeEntries> {
    let mut from = ByteReader::new(bytes);
    let mut tree = TreeEntries::new();
    while !from.is_empty() {
        tree.push((from.read_path()?, TreeNode::read_from(&mut from)?));
    }
    Some(tree)
}

/// Encodes the states of single paths.
pub(super) fn encode_path_states(places: &PathStates) -> Vec<u8> {
    let mut out = ByteWriter::default();
    for (path, node) in places {
        out.write_path(path);
        match node {
            Some(node) => node.write_to(&mut out),
            None => out.write_u8(0),
        }
    }
    out.0
}

/// Decodes the states of single paths; `None` if the bytes are malformed.
pub(super) fn decode_path_states(bytes: &[u8]) -> Option<PathStates> {
    let mut from = ByteReader::new(bytes);
    let mut places = PathStates::new();
    while !from.is_empty() {
        let path = from.read_path()?;
        // Node tags start at 1, so a zero byte marks a path where nothing exists.
        let mut ahead = from;
        let node = if ahead.read_u8()? == 0 {
            from = ahead;
            None
        } else {
            Some(TreeNode::read_from(&mut from)?)
        };
        places.push((path, node));
    }
    Some(places)
}

impl ObjectKind {
    /// Returns the number that packs and log store.
    pub(super) fn to_number(self) -> u8 {
        match self {
            Self::Content => 1,
            Self::Tree => 2,
            Self::PathStates => 3,
        }
    }

    /// Returns the kind with this number; `None` for one of a newer version.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Content, Self::Tree, Self::PathStates]
            .into_iter()
            .find(|kind| kind.to_number() == number)
    }
}
