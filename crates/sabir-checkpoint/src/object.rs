//! Objects: contents and folders, known by their SHA-256, and what stands at a path.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::encoding::{Reader, Writer};

/// What an object is known by: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId([u8; 32]);

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// Its permission bits and the sticky bit; set-user-id and set-group-id are not kept.
        mode: u32,
        /// In bytes.
        size: u64,
        /// What it holds.
        content: ObjectId,
    },
    /// A symbolic link, as a link.
    Link {
        /// Its text.
        target: PathBuf,
    },
    /// A folder.
    Folder {
        /// Its permission bits, with set-group-id and the sticky bit.
        mode: u32,
        /// What it holds; `None` where only the folder itself was looked at.
        tree: Option<ObjectId>,
    },
    /// A FIFO, a socket or a device: left alone.
    Special,
    /// Something whose content is not kept.
    NotKept {
        /// Why.
        why: NotKept,
        /// Whether it is a folder.
        folder: bool,
        /// Of a file: its size in bytes.
        size: u64,
        /// Of a file: a number made of size, time and inode, to see that it changed.
        stamp: u64,
    },
}

/// Why something is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// A file over the cap of one file.
    Large,
    /// A folder that the ignore files name, and that holds more than such a folder may.
    Ignored,
    /// The checkpoint holds as much as one may.
    Full,
    /// It cannot be read.
    Unreadable,
    /// Folders nested too deep.
    Deep,
    /// A folder of another file system.
    Elsewhere,
}

/// A folder's content: names in the order of their bytes.
pub(super) type Tree = Vec<(PathBuf, Node)>;
/// States of single paths, sorted; `None`: nothing is there.
pub(super) type Places = Vec<(PathBuf, Option<Node>)>;

/// What kind of object it is, for those who walk them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Content,
    Tree,
    Places,
}

impl ObjectId {
    /// The id of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Sixty-four hexadecimal digits.
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

impl NotKept {
    /// The reason in words: `is …`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Large => "larger than a file that is kept",
            Self::Ignored => "an ignored folder with more than such a folder may hold",
            Self::Full => "beyond what one checkpoint may hold",
            Self::Unreadable => "not readable",
            Self::Deep => "in folders nested too deep",
            Self::Elsewhere => "on another file system",
        }
    }

    const ALL: [Self; 6] = [Self::Large, Self::Ignored, Self::Full, Self::Unreadable, Self::Deep, Self::Elsewhere];
}

impl Node {
    /// Whether it is the same to somebody who looks at this path alone: of folders only the mode counts, since what they hold
    /// has paths of its own.
    pub(super) fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder { mode, .. }, Self::Folder { mode: other, .. }) => mode == other,
            (Self::NotKept { folder: true, .. }, Self::NotKept { folder: true, .. } | Self::Folder { .. })
            | (Self::Folder { .. }, Self::NotKept { folder: true, .. }) => true,
            (Self::NotKept { stamp, .. }, Self::NotKept { stamp: other, .. }) => stamp == other,
            _ => self == other,
        }
    }

    /// Whether it is a folder, kept or not.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. } | Self::NotKept { folder: true, .. })
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::File { mode, size, content } => {
                out.u8(1);
                out.u32(*mode);
                out.u64(*size);
                out.id(*content);
            }
            Self::Link { target } => {
                out.u8(2);
                out.path(target);
            }
            Self::Folder { mode, tree } => {
                out.u8(if tree.is_some() { 3 } else { 4 });
                out.u32(*mode);
                if let Some(tree) = tree {
                    out.id(*tree);
                }
            }
            Self::Special => out.u8(5),
            Self::NotKept { why, folder, size, stamp } => {
                out.u8(6);
                out.u8(NotKept::ALL.iter().position(|known| known == why).map_or(0, |at| at.to_le_bytes()[0]));
                out.u8(u8::from(*folder));
                out.u64(*size);
                out.u64(*stamp);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            1 => Self::File { mode: from.u32()?, size: from.u64()?, content: from.id()? },
            2 => Self::Link { target: from.path()? },
            3 => Self::Folder { mode: from.u32()?, tree: Some(from.id()?) },
            4 => Self::Folder { mode: from.u32()?, tree: None },
            5 => Self::Special,
            6 => Self::NotKept {
                why: *NotKept::ALL.get(usize::from(from.u8()?))?,
                folder: from.u8()? == 1,
                size: from.u64()?,
                stamp: from.u64()?,
            },
            _ => return None,
        })
    }
}

/// The bytes of a folder.
pub(super) fn write_tree(tree: &Tree) -> Vec<u8> {
    let mut out = Writer::default();
    for (name, node) in tree {
        out.bytes(name.as_os_str().as_bytes());
        node.write(&mut out);
    }
    out.0
}

pub(super) fn read_tree(bytes: &[u8]) -> Option<Tree> {
    let mut from = Reader::new(bytes);
    let mut tree = Tree::new();
    while !from.is_empty() {
        tree.push((from.path()?, Node::read(&mut from)?));
    }
    Some(tree)
}

/// The bytes of the states of single paths.
pub(super) fn write_places(places: &Places) -> Vec<u8> {
    let mut out = Writer::default();
    for (path, node) in places {
        out.path(path);
        match node {
            Some(node) => node.write(&mut out),
            None => out.u8(0),
        }
    }
    out.0
}

pub(super) fn read_places(bytes: &[u8]) -> Option<Places> {
    let mut from = Reader::new(bytes);
    let mut places = Places::new();
    while !from.is_empty() {
        let path = from.path()?;
        let mut ahead = from;
        let node = if ahead.u8()? == 0 {
            from = ahead;
            None
        } else {
            Some(Node::read(&mut from)?)
        };
        places.push((path, node));
    }
    Some(places)
}

impl Kind {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Content => 1,
            Self::Tree => 2,
            Self::Places => 3,
        }
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        [Self::Content, Self::Tree, Self::Places].into_iter().find(|kind| kind.number() == number)
    }
}
