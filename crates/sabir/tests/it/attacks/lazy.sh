# Lays out repositories whose index makes git fetch what it lacks, by a program of theirs. `sh lazy.sh DIR MARK`.
set -e
cd "$1"
mark=$2
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=a@b \
    GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=a@b

lazy() { # DIR: a repository with a sparse index that lacks the tree of `b`
    git init -q -b main "$1"
    mkdir "$1/a" "$1/b"
    echo x >"$1/a/x"
    echo y >"$1/b/y"
    git -C "$1" add .
    git -C "$1" commit -qm first
    tree=$(git -C "$1" rev-parse HEAD:b)
    git -C "$1" sparse-checkout set --cone --sparse-index a
    rm -f "$1/.git/objects/$(echo "$tree" | cut -c 1-2)/$(echo "$tree" | cut -c 3-)"
    git -C "$1" config core.repositoryFormatVersion 1
    git -C "$1" config extensions.partialClone origin
    git -C "$1" config remote.origin.promisor true
    git -C "$1" config remote.origin.url "$PWD"
    git -C "$1" config remote.origin.uploadpack "touch '$mark' #"
}

lazy sparse

# The same, embedded as plain files in what is cloned.
lazy inner
mv inner/.git/config inner/config
git init -q -b main source
mkdir -p source/docs
mv inner/.git/* inner/a source/docs/
mv inner/config source/docs/config
rm -rf source/docs/hooks source/docs/logs inner
git config --file source/docs/config core.bare false
git config --file source/docs/config core.worktree .
mkdir -p source/docs/refs/heads source/docs/objects/info
touch source/docs/refs/heads/keep source/docs/objects/keep
git -C source add -A
git -C source commit -qm docs
git clone -q source clone
