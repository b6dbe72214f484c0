# Lays out the folders that the cases of the policy name, each as DIR/NAME/proj. `sh folders.sh DIR`.
# What is hostile gives itself away by a file PWNED. Without gcc there is no evil.so.
set -e
base=$1
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=a@b \
    GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2026-01-02T03:04:05Z' GIT_COMMITTER_DATE='2026-01-02T03:04:05Z'

script() { # FILE, LINES: a program
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

project() { # NAME: two commits, an untracked file
    mkdir -p "$base/$1/proj/src"
    cd "$base/$1/proj"
    git init -q -b main
    git config user.name n
    git config user.email a@b
    printf 'alpha line 1\nmid line\nomega\n' >a.txt
    printf 'beta\n' >b.txt
    printf 'fn main() {\n  // x;y\n}\n' >src/main.rs
    git add a.txt b.txt src
    git commit -qm first
    printf 'alpha line 1\nmid line 2\nomega\n' >a.txt
    git commit -qam second
    echo new >untracked.txt
}

project plain

project hostile2
script evil.sh ': >PWNED'
printf '[core]\n\tfsmonitor = ./evil.sh\n' >evil.gitconfig
mkdir evilrepo
git -C evilrepo init -q -b main
git --git-dir=evilrepo/.git config core.fsmonitor 'touch ../PWNED PWNED #'

project hostile
script evil.sh ': >PWNED'
mkdir evilbin 0
for name in ls git ls-evil git-evil echo-x evilbin/git evilbin/cat evilbin/ls 0/ls; do cp evil.sh "$name"; done
echo 'require("fs").writeFileSync("PWNED", "")' >evil.js
printf 'open("PWNED", "w")\nimport unittest\n' >test_x.py
echo 'open("PWNED", "w")' >evilmod.py
printf 'BEGIN { open(F, ">PWNED") }\n' >evil.pl
printf 'w PWNED\n' >evil.sed
printf -- '-oPWNED' >evil.args
printf '1e touch PWNED\n' >'w PWNED'
echo '{"a":1}' >o.json
tar -cf ok.tar a.txt
echo '{"name": "x", "version": "1.0.0", "scripts": {"test": "touch PWNED"}}' >package.json
printf 'X := $(shell touch PWNED)\nall:\n\ttrue\n' >Makefile
printf '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n' >Cargo.toml
echo 'fn main() { std::fs::write("PWNED", "").unwrap(); }' >build.rs
if command -v gcc >/dev/null; then
    printf '#include <fcntl.h>\n__attribute__((constructor)) static void f(void) { open("PWNED", O_CREAT | O_WRONLY, 0644); }\n' >e.c
    gcc -shared -fPIC -o evil.so e.c
    rm e.c
fi
mkdir -p tmpl/hooks
script tmpl/hooks/pre-commit 'touch ../PWNED PWNED'
printf -- '--- /dev/null\n+++ b/PWNED\n@@ -0,0 +1 @@\n+x\n' >p.patch
printf -- '--pre\n./evil.sh\n' >rgrc
echo '*.txt diff=evil' >.gitattributes
git add .gitattributes
git commit -qm attributes
printf 'alpha line 1\nmid line 3\nomega\n' >a.txt
git commit -qam third
echo edit >>a.txt
git config core.fsmonitor ./evil.sh
git config diff.external ./evil.sh
git config diff.evil.textconv ./evil.sh
for hook in pre-commit post-checkout; do script ".git/hooks/$hook" 'touch PWNED'; done
rm -f PWNED

project sub
git init -q -b main "$base/inner"
git -C "$base/inner" commit -q --allow-empty -m x
git -c protocol.file.allow=always submodule --quiet add "$base/inner" sm
git commit -qm sm
rm -rf "$base/inner"

project filter
script f.sh 'touch PWNED; cat'
git config filter.evil.clean ./f.sh
git config filter.evil.smudge ./f.sh
echo '*.txt filter=evil' >.gitattributes
echo edit >>a.txt
rm -f PWNED
