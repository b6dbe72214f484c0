//! Finds paths by their names among all the trees that a repository keeps.
//!
//! `git show` and `git log -p` print files that only old commits hold. The index does not know them, and walking the commits
//! takes git itself, which may run programs of the repository. So all trees of the object store are read instead: the names in them
//! are the names of all files that any commit, stash or note ever had.
//!
//! A tree does not record its own path, and any tree may be the top of some commit. So each path is
//! also listed without its first folders: `a/b/.env` also as `b/.env` and `.env`. The list may
//! contain paths that never existed, but it misses none.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use super::GitConfigError;
use super::objects::{ObjectId, ObjectStore};

/// The deepest folder that is followed; git itself stops at 2,048.
const MAX_DEPTH: usize = 256;
/// The most locations that are kept.
const MAX_LOCATIONS: usize = 20_000_000;
/// The most paths that are returned, and the most paths of one folder.
const MAX_PATHS: usize = 50_000;

/// The paths that a search of the history looks for.
#[derive(Debug, Clone, Copy)]
pub struct PathFilter {
    /// Reports whether a path may be wanted, by its last component.
    pub may_end_with: fn(&str) -> bool,
    /// Reports whether a path is wanted.
    pub is_wanted: fn(&str) -> bool,
}

/// The location of an entry: the tree that holds it, and its name there.
struct EntryLocation {
    parent: u32,
    name: u32,
}

/// The trees of a store, as far as they lead to wanted names.
#[derive(Default)]
struct TreeMap {
    /// The number of each tree.
    numbers: HashMap<ObjectId, u32>,
    /// The number of each name.
    names: HashMap<Vec<u8>, u32>,
    /// The names as text, by their numbers.
    name_texts: Vec<String>,
    /// The locations of each tree, by its number.
    locations: Vec<Vec<EntryLocation>>,
    /// The entries with a wanted name.
    wanted: Vec<EntryLocation>,
    count: usize,
}

/// The paths that lead to a tree, by its number.
type PathsOfTree = HashMap<u32, Rc<BTreeSet<String>>>;

/// Returns the paths in the trees of a store that a filter wants, longest first.
pub(super) fn find_paths(
    store: &ObjectStore,
    filter: &PathFilter,
) -> Result<Vec<String>, GitConfigError> {
    // Most repositories hold no such name at all, and then their shape does not matter.
    if !holds_name(store, filter)? {
        return Ok(Vec::new());
    }
    let mut map = TreeMap::default();
    store.visit_trees(&mut |id, tree| map.add_tree(id, tree, store.hash_bytes, filter))?;
    let mut found = BTreeSet::new();
    let mut known = PathsOfTree::new();
    for location in &map.wanted {
        let name = map.name(location.name);
        for folder in map.paths_of(location.parent, &mut known, 0)?.iter() {
            let path = join_path(folder, name);
            if (filter.is_wanted)(&path) {
                found.insert(path);
            }
            if found.len() > MAX_PATHS {
                return Err(GitConfigError::TooMuch);
            }
        }
    }
    let mut found: Vec<String> = found.into_iter().collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.len()));
    Ok(found)
}

/// Reports whether any tree holds a name with which a wanted path may end.
fn holds_name(store: &ObjectStore, filter: &PathFilter) -> Result<bool, GitConfigError> {
    let mut seen: HashMap<Vec<u8>, ()> = HashMap::new();
    let mut is_found = false;
    store.visit_trees(&mut |id, tree| {
        for entry in TreeEntries::new(tree, store.hash_bytes) {
            let name = entry.ok_or_else(|| broken_tree(id))?.name;
            if !is_found && !seen.contains_key(name) {
                seen.insert(name.to_vec(), ());
                is_found = (filter.may_end_with)(&String::from_utf8_lossy(name));
            }
        }
        Ok(())
    })?;
    Ok(is_found)
}

fn broken_tree(id: &ObjectId) -> GitConfigError {
    let spelled: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    GitConfigError::File(format!("the tree {spelled}").into())
}

fn join_path(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        _ => format!("{folder}/{name}"),
    }
}

impl TreeMap {
    /// Notes the folders of a tree, and the wanted names in it.
    fn add_tree(
        &mut self,
        id: &ObjectId,
        tree: &[u8],
        hash_bytes: usize,
        filter: &PathFilter,
    ) -> Result<(), GitConfigError> {
        let parent = self.number(id);
        for entry in TreeEntries::new(tree, hash_bytes) {
            let entry = entry.ok_or_else(|| broken_tree(id))?;
            let spelled = String::from_utf8_lossy(entry.name);
            if entry.is_folder {
                let name = self.name_number(entry.name);
                let child = self.number(&entry.id) as usize;
                let locations = self.locations.get_mut(child);
                locations
                    .into_iter()
                    .for_each(|list| list.push(EntryLocation { parent, name }));
                self.count += 1;
            }
            if (filter.may_end_with)(&spelled) {
                let name = self.name_number(entry.name);
                self.wanted.push(EntryLocation { parent, name });
                self.count += 1;
            }
            if self.count > MAX_LOCATIONS {
                return Err(GitConfigError::TooMuch);
            }
        }
        Ok(())
    }

    fn number(&mut self, id: &ObjectId) -> u32 {
        let next = u32::try_from(self.locations.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(*id).or_insert(next);
        if number == next {
            self.locations.push(Vec::new());
        }
        number
    }

    fn name_number(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let next = u32::try_from(self.name_texts.len()).unwrap_or(u32::MAX);
        self.names.insert(name.to_vec(), next);
        self.name_texts
            .push(String::from_utf8_lossy(name).into_owned());
        next
    }

    fn name(&self, number: u32) -> &str {
        self.name_texts
            .get(number as usize)
            .map_or("", String::as_str)
    }

    /// Returns all paths by which a tree can be reached from any tree, with the empty one: it may be the top itself.
    fn paths_of(
        &self,
        tree: u32,
        known: &mut PathsOfTree,
        depth: usize,
    ) -> Result<Rc<BTreeSet<String>>, GitConfigError> {
        if let Some(paths) = known.get(&tree) {
            return Ok(Rc::clone(paths));
        }
        if depth > MAX_DEPTH {
            return Err(GitConfigError::TooMuch);
        }
        let mut paths = BTreeSet::from([String::new()]);
        for location in self.locations.get(tree as usize).into_iter().flatten() {
            let name = self.name(location.name);
            let above = self.paths_of(location.parent, known, depth + 1)?;
            paths.extend(above.iter().map(|folder| join_path(folder, name)));
            if paths.len() > MAX_PATHS {
                return Err(GitConfigError::TooMuch);
            }
        }
        let paths = Rc::new(paths);
        known.insert(tree, Rc::clone(&paths));
        Ok(paths)
    }
}

/// An entry of a tree.
struct TreeEntry<'a> {
    name: &'a [u8],
    is_folder: bool,
    id: ObjectId,
}

/// An iterator over the entries of a tree; it ends with `None` where the tree is broken.
struct TreeEntries<'a> {
    rest: &'a [u8],
    hash_bytes: usize,
}

impl<'a> TreeEntries<'a> {
    fn new(tree: &'a [u8], hash_bytes: usize) -> Self {
        Self {
            rest: tree,
            hash_bytes,
        }
    }

    fn read_entry(&mut self) -> Option<TreeEntry<'a>> {
        let end = memchr::memchr(0, self.rest)?;
        let head = self.rest.get(..end)?;
        let blank = memchr::memchr(b' ', head)?;
        let mode = head.get(..blank)?;
        let id_at = end + 1;
        let mut id = ObjectId::default();
        let own = self.rest.get(id_at..id_at + self.hash_bytes)?;
        id.get_mut(..self.hash_bytes)?.copy_from_slice(own);
        self.rest = self.rest.get(id_at + self.hash_bytes..)?;
        Some(TreeEntry {
            name: head.get(blank + 1..)?,
            // Old versions of git wrote a zero in front.
            is_folder: matches!(mode, b"40000" | b"040000"),
            id,
        })
    }
}

impl<'a> Iterator for TreeEntries<'a> {
    type Item = Option<TreeEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.read_entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry)
    }
}
