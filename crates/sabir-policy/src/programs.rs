//! Programs that only read, with the allowed arguments of each.
//!
//! A row must not list an option that writes a file, runs a program or uses the network in any common version of the program.
//!
//! To add a program:
//!
//! 1. Read its manual for every option that writes, runs or sends something, in each common version (GNU, BSD, busybox).
//!    Abbreviations count: GNU `sort` takes `--outp=x` for `--output=x`, so options are compared whole.
//! 2. List the options that do none of that. Whatever is not listed asks; a missing option costs a question, a wrong one a hole.
//! 3. Choose the kind of operands. If more than some number of them writes (`uniq in out`, `xxd in out`), use
//!    `AtMost`. If the first is a pattern or script, use `Then(1)`.
//! 4. Use `with_harmless_options` only if no option at all has an effect beyond printing, since then a word that is not
//!    certain may become an option.
//! 5. Add lines to `tests/it/lines.txt`: some that run, and each option left out as one that asks.
//!
//! A program that names its own configuration file in the folder (`.yarnrc`, `rust-toolchain.toml`) does not belong here but in
//! `everyday.rs`, where a row says which files must be absent.

use super::ask_reason::AskReason;
use super::grammar::OperandKind::{AtMost, Nothing, Paths, Text, Then};
use super::grammar::{ParsedArguments, ProgramGrammar};
use super::scripts;
use super::word::{ShellWord, is_name};

/// Finds the grammar of a program. Each name appears in one row only.
pub(crate) fn find_program(name: &str) -> Option<&'static ProgramGrammar> {
    ROWS.iter().find(|row| row.names.contains(&name))
}

/// Programs that other programs start by a bare name, apart from those in the tables: pagers, editors, decompressors, signers,
/// interpreters, and helpers for connections and logins (`kubectl`).
const HELPER_PROGRAMS: &str = "ash askpass aws-iam-authenticator aws-vault bash brotli bun bunzip2 busybox code compress dash deno doctl \
    editor emacs env fish gke-gcloud-auth-plugin gpg gpg-agent gpg2 gpgsm gpgv gunzip java ksh kubelogin less lesspipe lz4 lzop man \
    most nano node nodejs nvim oci op pager pass perl php pinentry plink rbash ruby scp sh ssh ssh-add ssh-agent ssh-askpass ssh-keygen \
    sudo tclsh tsh unzip vi view vim xdg-open xz zcat zsh zstd";

/// Programs that run `python3` of the search path, as scripts of that language may.
const PYTHON_SCRIPTS: [&str; 6] = ["ansible", "aws", "az", "conda", "gcloud", "pre-commit"];

/// Reports whether a program runs Python of the search path.
pub(crate) fn starts_python(name: &str) -> bool {
    PYTHON_SCRIPTS.contains(&name)
}

/// Returns true if other commands keep their usual effect although a program of this name is in a folder of the workspace that `PATH`
/// contains, such as an activated virtual environment.
///
/// False for a name that is in the tables or that other programs start, except Python, its installers, tests and linters, which ask under
/// their own names.
#[must_use]
pub fn may_be_in_workspace(name: &str) -> bool {
    if is_python_tool(name) {
        return true;
    }
    let is_extension = [
        "git-", "cargo-", "docker-", "gh-", "kubectl-", "npm-", "pyenv-", "rbenv-", "rustup-",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix));
    !is_extension
        && find_program(name).is_none()
        && !super::everyday::is_read_only_program(name)
        && !super::wrappers::is_wrapper(name)
        && !HELPER_PROGRAMS
            .split_whitespace()
            .any(|helper| helper == name)
}

/// Returns true for Python, its installers, and its usual tests and linters. Other programs start them only by their full path (except
/// `gcloud` and the like, which ask then), so one in the workspace only changes the effect of its own name.
#[must_use]
pub fn is_python_tool(name: &str) -> bool {
    const TOOLS: [&str; 12] = [
        "black", "coverage", "flake8", "isort", "mypy", "nox", "poetry", "pyright", "pytest",
        "ruff", "tox", "uv",
    ];
    let version = ["python", "pip"]
        .iter()
        .find_map(|tool| name.strip_prefix(tool));
    TOOLS.contains(&name)
        || version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Describes the effect of a program that runs unasked only to tell its version, as a phrase for the user.
pub(crate) fn describe_effect(name: &str) -> String {
    let effect = match name {
        "curl" | "wget" => "sends to and fetches from the network",
        "ssh" => "runs commands on another machine",
        "make" | "gmake" | "cmake" | "ninja" => "runs commands that the repository names",
        "npm" | "pip" | "pip3" | "uv" => "may install packages and run their code",
        "docker" => "manages containers, with the rights of root",
        "gcc" | "g++" | "clang" | "clang++" | "cc" | "c++" | "ld" | "javac" => "writes files",
        "vim" | "nvim" => "opens an editor, which can run commands",
        "sqlite3" | "psql" => "may change a database",
        _ => "runs code",
    };
    format!("{name} {effect}")
}

/// The shell builtins among the rows, which run regardless of `PATH`.
pub(crate) const BUILTINS: [&str; 8] = [
    "echo", "true", "false", ":", "printf", "pwd", "type", "wait",
];

/// The grammars of all programs that only read.
const ROWS: &[ProgramGrammar] = &[
    // Programs that only print their arguments.
    ProgramGrammar::new(&["echo"], "-n -e -E", Text).with_harmless_options(),
    ProgramGrammar::new(&["true", "false", ":", "yes"], "", Text).with_harmless_options(),
    ProgramGrammar::new(&["printf"], "", Text).with_harmless_options().with_check(plain_format),
    ProgramGrammar::new(&["pwd"], "-L -P", Nothing),
    ProgramGrammar::new(&["type"], "-a -t -p -P -f", Text).with_check(only_plain_operands),
    ProgramGrammar::new(&["wait"], "", Nothing),
    ProgramGrammar::new(&["sleep", "seq"], "-w -s= -f= -#", Text),
    ProgramGrammar::new(&["expr"], "", Text).with_harmless_options(),
    ProgramGrammar::new(&["which"], "-a -s", Text),
    ProgramGrammar::new(&["whereis"], "-b -m -s -l -u", Text).with_check(only_plain_operands),
    ProgramGrammar::new(&["whatis", "apropos"], "-l -e -w -r -s=", Text).with_check(only_plain_operands),
    ProgramGrammar::new(&["basename", "dirname"], "-a -s= -z --suffix= --multiple --zero", Text).with_harmless_options(),
    ProgramGrammar::new(
        &["date"],
        "-u -R -I=? -d= -r=@ --date= --reference=@ --utc --universal --iso-8601=? --rfc-3339= --rfc-email --debug",
        Text,
    )
    .with_check(only_formats),
    ProgramGrammar::new(&["cal"], "-1 -3 -y -m -j -n= -w", Text),
    // Information about the machine.
    ProgramGrammar::new(&["whoami", "logname", "tty", "groups", "arch"], "--all -s", Nothing),
    ProgramGrammar::new(&["hostname"], "-s -f -i -I -d", Nothing),
    ProgramGrammar::new(&["uname"], "-a -s -n -r -v -m -p -i -o --all", Nothing),
    ProgramGrammar::new(&["id"], "-u -g -G -n -r", Text),
    ProgramGrammar::new(&["hostid", "users", "lsmem", "lslogins", "times", "uuidgen"], "", Nothing),
    ProgramGrammar::new(&["lsb_release"], "-a -d -s -i -r -c", Nothing),
    ProgramGrammar::new(&["last", "lastlog"], "-n= -# -x -F -a -w", Nothing),
    ProgramGrammar::new(&["uptime"], "-p -s", Nothing),
    ProgramGrammar::new(&["free"], "-h -m -g -k -b -t -w", Nothing),
    ProgramGrammar::new(&["df"], "-h -H -k -m -T -i -a -P -l --total", Text),
    ProgramGrammar::new(&["lscpu"], "-e=? -p=? -J -x -a --json --all", Nothing),
    ProgramGrammar::new(&["lsblk"], "-f -l -o= -J -a -b -d -p -n -t -S -m --json --all --bytes --output= --fs --list --noheadings", Text).with_check(only_plain_operands),
    ProgramGrammar::new(&["findmnt"], "-l -t= -o= -n -J -a -T=@ -D --df --json --noheadings --output= --types=", Text),
    // Other options of ss and netstat close connections or write files. Without `-n`, netstat and
    // lsof resolve host names over the network.
    ProgramGrammar::new(&["ss"], "-t -u -l -n -p -a -x -s -e -4 -6 -o -i -m --tcp --udp --listening --numeric --processes --all", Nothing),
    ProgramGrammar::new(&["netstat"], "-t -u -l -n -p -a -x -s -e -4 -6 -o -i -r --tcp --udp --listening --numeric --programs --all --route", Nothing).with_check(only_numeric_output),
    ProgramGrammar::new(&["lsof"], "-i=? -n -P -p= -u= -t -c= -a", Text).with_check(only_numeric_output),
    ProgramGrammar::new(&["ip"], "-4 -6 -br -o -j -c -s -brief -json -oneline", Text).with_check(only_ip_listings),
    ProgramGrammar::new(&["ifconfig"], "-a -s", Nothing),
    ProgramGrammar::new(&["getent"], "", Text).with_check(only_local_databases),
    ProgramGrammar::new(&["pstree"], "-a -c -h -l -n -p -u -s -A -T", Text),
    ProgramGrammar::new(&["pidof"], "-s -x -c", Text),
    ProgramGrammar::new(&["pmap"], "-x -d -q -X", Text),
    ProgramGrammar::new(&["dmesg"], "-T -x -t -k -u -e -l= -f= --ctime --decode --kernel --level= --facility= --nopager -P", Nothing),
    ProgramGrammar::new(&["tput"], "", Text).with_check(only_terminal_queries),
    ProgramGrammar::new(&["stty"], "-a -g", Nothing),
    ProgramGrammar::new(&["dpkg", "dpkg-query"], "-l -s -S -L -W -f= --list --status --search --listfiles --show --showformat= --print-architecture", Text).with_check(requires_option),
    ProgramGrammar::new(&["ps"], "-e -f -a -x -u= -p= -o= -A -l -L -w -H --sort= --no-headers --forest -C=", Text).with_check(only_ps_letters),
    ProgramGrammar::new(&["pgrep"], "-f -l -a -x -n -o -c -u= -P=", Text),
    ProgramGrammar::new(&["printenv"], "", Text),
    ProgramGrammar::new(&["locale"], "-a", Nothing),
    // Files.
    ProgramGrammar::new(&["ls", "dir", "vdir"], LS, Paths).with_harmless_options(),
    ProgramGrammar::new(&["eza", "exa"], EZA, Paths),
    ProgramGrammar::new(&["tree"], "-a -d -l -L= -I= -P= -f -i -s -h -D -F -C -n -v -t -c -r -p -u -g -q -N -Q -A -S -x -X --noreport --dirsfirst --gitignore --prune --du -J --filelimit= --charset= --sort= --si --inodes --matchdirs --ignore-case --filesfirst", Paths),
    ProgramGrammar::new(&["cat"], "-A -b -e -E -n -s -t -T -u -v --number --show-all --show-ends --show-tabs --squeeze-blank", Paths).with_harmless_options(),
    ProgramGrammar::new(&["bat", "batcat"], BAT, Paths).with_check(no_cache),
    ProgramGrammar::new(&["tac", "rev"], "-b -r -s=", Paths).with_harmless_options(),
    ProgramGrammar::new(&["pr"], "-# -d -t -T -h= -l= -w= -W= -n=? -s=? -S=? -o= -m -a -f -F -e=? -i=? -J -N= -r -v -D= --columns= --double-space --header= --length= --merge --omit-header --width= --page-width= --number-lines=?", Paths).with_check(no_plus_files),
    ProgramGrammar::new(&["namei"], "-x -m -o -l -v -n --modes --owners --long --mountpoints --nosymlinks --vertical", Paths),
    ProgramGrammar::new(&["head", "tail"], "-n= -c= -f -F -q -v -z -# -s= --lines= --bytes= --follow=? --retry --pid= --quiet --silent --verbose", Paths).with_harmless_options().with_check(no_plus_files),
    ProgramGrammar::new(&["nl"], "-b= -n= -w= -s= -v= -i= -a -h= -f= -d= -l= -p", Paths),
    ProgramGrammar::new(&["wc"], "-c -l -m -w -L --lines --words --bytes --chars --max-line-length", Paths).with_harmless_options(),
    ProgramGrammar::new(&["stat"], "-c= -f -L -t --format= --printf= --terse --dereference --file-system", Paths).with_harmless_options(),
    ProgramGrammar::new(&["file"], "-b -i -L -h -k -n -N -r -z --brief --mime --mime-type --mime-encoding --dereference", Paths),
    ProgramGrammar::new(&["du"], "-h -s -a -c -k -m -b -d= -L -x -S --max-depth= --exclude= --apparent-size --total --summarize --human-readable --all -t= -0 -l -P -D -H -B= --threshold= --time=? --si --inodes --one-file-system --separate-dirs --block-size= --bytes --null --dereference --no-dereference", Paths).with_harmless_options(),
    ProgramGrammar::new(&["readlink", "realpath"], "-f -e -m -n -q -s -z --relative-to=@ --relative-base=@ --canonicalize", Paths).with_harmless_options(),
    ProgramGrammar::new(&["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "sum"], "-b -t -z --tag --binary --text", Paths).with_harmless_options(),
    ProgramGrammar::new(&["shasum"], "-a= -b -t -0 -1 --algorithm= --binary --text --tag", Paths),
    ProgramGrammar::new(&["cmp"], "-s -l -b -n= -i= --silent --quiet --verbose --print-bytes", Paths).with_harmless_options(),
    // The other options of sdiff write a file or choose the diff program.
    ProgramGrammar::new(&["sdiff"], "-s -l -w= -i -b -W -B -E -t -d -a --suppress-common-lines --width= --ignore-case", Paths),
    ProgramGrammar::new(&["diff3"], "-m -e -E -A -x -X -3 -i -T -a -L= --merge --show-all --show-overlap --easy-only --text --label=", Paths),
    ProgramGrammar::new(&["wdiff"], "-n -1 -2 -3 -s -i -w= -x= -y= -z= --no-common --no-deleted --no-inserted --statistics --ignore-case", Paths),
    ProgramGrammar::new(&["comm"], "-1 -2 -3 -z --check-order --nocheck-order --total --output-delimiter=", Paths).with_harmless_options(),
    ProgramGrammar::new(&["diff"], DIFF, Paths).with_harmless_options(),
    ProgramGrammar::new(&["strings"], "-a -n= -t= -e= -f -#", Paths).with_check(no_responses),
    ProgramGrammar::new(&["objdump"], "-d -D -t -T -h -x -f -p -s -r -R -C -a -j= -M= --disassemble=? --syms --section-headers --file-headers --no-show-raw-insn --demangle", Paths).with_check(no_responses),
    ProgramGrammar::new(&["addr2line"], "-e=@ -f -C -p -i -a", Text).with_check(no_responses),
    ProgramGrammar::new(&["c++filt"], "-n -t -i -p", Text).with_check(no_responses),
    ProgramGrammar::new(&["hexdump", "hd"], "-C -n= -s= -v -b -c -d -o -x", Paths),
    ProgramGrammar::new(&["od"], "-A= -t= -N= -j= -v -w=? -c -x -b -d -o", Paths).with_harmless_options(),
    // `xxd in out` writes a file.
    ProgramGrammar::new(&["xxd"], "-l= -s= -c= -g= -p -ps -b -u -i -e -r -E -d -o=", AtMost(1)).without_clusters().with_check(options_first),
    ProgramGrammar::new(&["jq"], JQ, Then(1)).with_check(no_modules),
    ProgramGrammar::new(&["yq"], "-r -o= -p= -P -M -C -N -e -j -c --output-format= --input-format= --prettyPrint --no-colors --no-doc --exit-status --raw-output", Then(1)).with_check(scripts::check_yq),
    // Text.
    ProgramGrammar::new(&["grep", "egrep", "fgrep"], GREP, Then(1)).with_harmless_options(),
    ProgramGrammar::new(&["rg"], RG, Then(1)).with_check(no_outside_listing),
    ProgramGrammar::new(&["zgrep", "xzgrep", "bzgrep"], "-i -v -c -n -l -h -H -w -x -E -F -o -q -e= -A= -B= -C= -m=", Then(1)).with_check(only_plain_file_names),
    ProgramGrammar::new(&["ag"], "-l -L -i -c -n -w -Q -v -A= -B= -C= -g= --nocolor --nogroup --files-with-matches --ignore-case", Then(1)),
    ProgramGrammar::new(&["fd", "fdfind"], FD, Then(1)),
    ProgramGrammar::new(&["sort"], SORT, Paths),
    // `uniq in out` writes a file.
    ProgramGrammar::new(&["uniq"], "-c -d -D -u -i -z -f= -s= -w= --count --repeated --unique --ignore-case --all-repeated=? --skip-fields= --skip-chars= --check-chars=", AtMost(1)).with_check(options_first),
    ProgramGrammar::new(&["cut"], "-b= -c= -d= -f= -n -s -z --bytes= --characters= --delimiter= --fields= --only-delimited --complement --output-delimiter=", Paths).with_harmless_options(),
    ProgramGrammar::new(&["paste"], "-d= -s -z --delimiters= --serial", Paths).with_harmless_options(),
    ProgramGrammar::new(&["join"], "-1= -2= -a= -e= -i -j= -o= -t= -v= -z --header --check-order --nocheck-order", Paths).with_harmless_options(),
    ProgramGrammar::new(&["column"], "-t -s= -o= -c= -x -n -N= -J -R= -H= -O= -L -e -d --table --separator= --output-separator= --json --table-columns= --table-right= --table-hide=", Paths),
    ProgramGrammar::new(&["look"], "-a -b -d -f -t=", Then(1)),
    ProgramGrammar::new(&["col"], "-b -f -p -x -h -l=", Nothing),
    ProgramGrammar::new(&["colrm"], "", Text),
    ProgramGrammar::new(&["ul"], "-i -t=", Paths),
    ProgramGrammar::new(&["iconv"], "-f= -t= -l -c -s --from-code= --to-code= --list --silent", Paths),
    ProgramGrammar::new(&["fold", "fmt"], "-b -s -w= -c -t -u --width= --spaces", Paths).with_harmless_options(),
    ProgramGrammar::new(&["expand", "unexpand"], "-t= -i -a --tabs= --initial", Paths).with_harmless_options(),
    ProgramGrammar::new(&["tr"], "-c -C -d -s -t --complement --delete --squeeze-repeats --truncate-set1", Text).with_harmless_options(),
    ProgramGrammar::new(&["tsort"], "", Paths),
    ProgramGrammar::new(&["basenc"], "-d -i -w= --base64 --base64url --base32 --base32hex --base16 --base2msbf --base2lsbf --z85 --decode --ignore-garbage --wrap=", Paths),
    ProgramGrammar::new(&["base64", "base32"], "-d -i -w= --decode --ignore-garbage --wrap=", Paths),
    ProgramGrammar::new(&["sed", "gsed"], "-n -e= -E -r -s -u -z --quiet --silent --expression= --regexp-extended --null-data --separate --unbuffered --posix --sandbox", Then(1)).with_check(scripts::check_sed),
    ProgramGrammar::new(&["awk", "gawk", "mawk"], "-F= -v= --field-separator= --assign=", Then(1)).with_check(scripts::check_awk),
    ProgramGrammar::new(&["shuf"], "-n= -e -i= -r -z", Paths),
    ProgramGrammar::new(&["bc", "numfmt", "factor"], "-l -q --to= --from= --suffix= --padding= --round= --grouping --header=? --field= -d= --delimiter= --format=", Text).with_check(only_numbers),
    ProgramGrammar::new(&["gofmt"], "-l -d -s -e", Paths),
    ProgramGrammar::new(&["shellcheck"], "-s= -e= -f= -S= -i= -a --shell= --exclude= --format= --severity= --include=", Paths),
    ProgramGrammar::new(&["tokei", "cloc", "scc"], "--files", Paths),
    ProgramGrammar::new(&["nproc"], "--all --ignore=", Nothing),
    ProgramGrammar::new(&["dircolors"], "-p --print-database --print-ls-colors", Nothing),
    ProgramGrammar::new(&["less", "more"], "-R -S -N -F -X -n -i -M -r -E -s", Paths).with_check(no_plus_files),
    ProgramGrammar::new(&["tee"], "-a -i", Text).with_check(only_null),
    // tar takes a name with a colon for a file on another machine and fetches it by rsh or ssh.
    ProgramGrammar::new(&["tar"], "-t -v -z -j -J -f=@ --list --verbose --file=@", Text).with_check(only_tar_listing),
    ProgramGrammar::new(&["unzip"], "-l -v", AtMost(1)).with_check(only_zip_listing),
    ProgramGrammar::new(&["zcat", "bzcat", "xzcat", "lzcat", "zstdcat"], "", Paths),
    // Without `-c` or `-l` these replace the file.
    ProgramGrammar::new(&["gzip", "gunzip", "bzip2", "xz"], "-c -d -l -v -t --stdout --list --decompress --test", Paths).with_check(only_to_stdout),
    ProgramGrammar::new(&["nm", "size"], "-g -u -n -C -D -A -t", Paths).with_check(no_responses),
    ProgramGrammar::new(&["readelf"], "-a -h -l -S -s -n -r -d -V -W", Paths).with_check(no_responses),
    ProgramGrammar::new(&["umask", "jobs", "dirs", "who", "w", "vmstat"], "-l -p -v -a -b -q -H -u -h -s -f -S -w -r", Nothing),
    // Without operands these print.
    ProgramGrammar::new(&["alias", "export", "hash", "history", "shopt", "trap"], "-p", Nothing),
    ProgramGrammar::new(&["help"], "-d -m -s", Text).with_check(only_plain_operands),
    ProgramGrammar::new(&["ulimit"], "-a -n -H -S", Nothing),
    ProgramGrammar::new(&["getconf"], "-a", Text).with_check(only_plain_operands),
    // Interpreters and build tools only print their version, since anything else may run code. Left out are programs that choose what to
    // run from a file in the folder: cargo and rustc (rust-toolchain.toml), go (go.mod), mvn (.mvn), yarn (.yarnrc), dotnet (global.json).
    // `everyday.rs` lists what they may do without such a file.
    ProgramGrammar::new(&["python", "python3", "pip", "pip3"], "--version -V", Nothing).with_check(only_version).for_version_only(),
    ProgramGrammar::new(&["ruby", "php", "perl", "node", "npm", "lua", "deno", "bun", "docker"], "--version -v", Nothing).with_check(only_version).for_version_only(),
    ProgramGrammar::new(&["gcc", "g++", "clang", "clang++", "cc", "c++", "cmake", "ninja", "make", "gmake", "ld", "gdb", "lldb", "curl", "wget"], "--version", Nothing).with_check(only_version).for_version_only(),
    ProgramGrammar::new(&["sqlite3", "psql", "uv", "ruff", "nvim", "vim"], "--version", Nothing).with_check(only_version).for_version_only(),
    ProgramGrammar::new(&["ssh"], "-V", Nothing).with_check(only_version).for_version_only(),
    ProgramGrammar::new(&["java", "javac"], "-version --version", Nothing).with_check(only_version).for_version_only(),
];

/// Options of `ls`. All of them only change what is listed and how.
const LS: &str = "-a -A -b -B -c -C -d -f -F -g -G -h -H -i -k -l -L -m -n -N -o -p -q -Q -r -R -s -S -t -T= -u -U -v -w= -x -X -Z -1 -I= \
    --all --almost-all --color=? --classify=? --directory --full-time --group-directories-first --human-readable --inode --ignore= \
    --recursive --reverse --size --sort= --time= --time-style= --file-type --format= --no-group --numeric-uid-gid --hide= --width= \
    --zero --hyperlink=? --dereference --dereference-command-line --si --block-size= --author --literal --quote-name --quoting-style= \
    --show-control-chars --hide-control-chars --context --indicator-style= --kibibytes --escape --ignore-backups --tabsize=";
/// Options of `diff`. None of them writes; `--to-file` and `--from-file` name further files to read.
const DIFF: &str = "-u -U= -c -C= -q -s -y -r -N -a -b -B -w -i -E -Z -t -d -p -x= -I= -W= -e -n -# --unified=? --context=? --brief \
    --report-identical-files --side-by-side --recursive --new-file --text --ignore-space-change --ignore-blank-lines \
    --ignore-all-space --ignore-case --ignore-trailing-space --color=? --exclude= --width= --suppress-common-lines --minimal \
    --strip-trailing-cr --no-dereference --left-column --normal --label= -S= -F= -T -X=@ --from-file=@ --to-file=@ --exclude-from=@ \
    --ignore-matching-lines= --show-function-line= --show-c-function --expand-tabs --initial-tab --tabsize= --ed --rcs \
    --speed-large-files --ignore-file-name-case --line-format= --old-line-format= --new-line-format= --unchanged-line-format= \
    --old-group-format= --new-group-format= --changed-group-format= --unchanged-group-format= --starting-file= --horizon-lines=";
/// Options of `eza`. `--git` reads the repository without starting git.
const EZA: &str = "-1 -l -a -d -D -f -F=? -G -x -R -r -h -H -i -m -U -u -g -n -S -b -B -T -L= -s= -t= -I= --long --all --list-dirs --only-dirs \
    --only-files --oneline --grid --across --recurse --tree --level= --sort= --reverse --group-directories-first --git-ignore \
    --ignore-glob= --header --icons=? --color=? --no-permissions --no-filesize --no-user --no-time --modified --time= --time-style= \
    --group --inode --links --blocks --binary --bytes --git";
/// Options of `bat`. Left out are `--pager`, which runs a program, and `--diff`, which starts git.
const BAT: &str = "-p -pp -n -A -u -S -P -l= -r= -H= -m= --plain --number --show-all --unbuffered --no-pager --language= --line-range= \
    --highlight-line= --map-syntax= --paging= --style= --color= --decorations= --theme= --tabs= --wrap= --terminal-width= --file-name= \
    --list-languages --list-themes --squeeze-blank";
/// Options of `grep`. `-P` uses a regex engine with limits of its own; `-f` reads patterns from a file.
const GREP: &str = "-a -A= -b -B= -c -C= -d= -D= -e= -E -f=@ -F -G -h -H -i -I -l -L -m= -n -o -P -q -r -R -s -T -U -v -w -x -y -z -Z -# \
    --after-context= --before-context= --context= --binary-files= --byte-offset --color=? --colour=? --count --devices= --directories= \
    --exclude= --exclude-dir= --exclude-from=@ --extended-regexp --file=@ --files-with-matches --files-without-match --fixed-strings \
    --basic-regexp --ignore-case --no-ignore-case --include= --initial-tab --invert-match --label= --line-buffered --line-number \
    --line-regexp --max-count= --no-filename --no-messages --null --null-data --only-matching --perl-regexp --quiet --silent \
    --recursive --dereference-recursive --regexp= --text --with-filename --word-regexp";
/// Options of `rg`. Left out are `--pre` and `--hostname-bin`, which run programs, and `-z`, which starts decompressors by name.
const RG: &str = "-a -A= -B= -b -c -C= -e= -E= -f=@ -F -g= -H -i -I -j= -l -L -m= -M= -n -N -o -p -P -q -r= -s -S -t= -T= -u -U -v -w -x -0 \
    --after-context= --before-context= --context= --byte-offset --case-sensitive --color= --column --context-separator= --count \
    --count-matches --crlf --debug --encoding= --file=@ --files --files-with-matches --files-without-match --fixed-strings --follow \
    --glob= --glob-case-insensitive --heading --hidden --iglob= --ignore-case --invert-match --json --line-number --line-regexp \
    --max-columns= --max-count= --max-depth= --max-filesize= --multiline --multiline-dotall --no-config --no-filename --no-heading \
    --no-ignore --no-ignore-vcs --no-line-number --no-messages --null --only-matching --passthru --pcre2 --pretty --quiet --regexp= \
    --replace= --smart-case --sort= --sortr= --stats --text --threads= --trim --type= --type-list --type-not= --unrestricted \
    --version --vimgrep --with-filename --word-regexp --no-require-git --no-unicode --include-zero -d= --type-add= --type-clear= \
    --no-ignore-parent --no-ignore-dot --no-ignore-global --no-ignore-exclude --no-follow --no-hidden --one-file-system --no-pcre2 \
    --no-stats --path-separator= --field-match-separator= --field-context-separator= --dfa-size-limit= --regex-size-limit= \
    --stop-on-nonmatch --max-columns-preview --no-trim --no-multiline --engine= --auto-hybrid-regex --hyperlink-format= --ignore-file=@ \
    --mmap --no-mmap --line-buffered --block-buffered --binary --null-data --colors=";
/// Options of `fd`. Left out are `-x` and `-X`, which run programs, and `--ignore-file`.
const FD: &str = "-H -I -u -s -i -g -F -a -l -L -p -0 -d= -t= -e= -E= -S= -c= -j= --hidden --no-ignore --no-ignore-vcs --unrestricted \
    --case-sensitive --ignore-case --glob --fixed-strings --absolute-path --follow --full-path --print0 --max-depth= --min-depth= \
    --exact-depth= --type= --extension= --exclude= --size= --changed-within= --changed-before= --color= --max-results= -1 --regex \
    -q --quiet --has-results --base-directory=@ --search-path=@ --no-follow --strip-cwd-prefix=? --threads= --absolute-path --no-require-git \
    --no-ignore-parent --one-file-system --prune --and= -A --relative-path --path-separator= --show-errors --exact-depth= --owner= -o=";
/// Options of `sort`. Left out are `-o`, `-T` and `--compress-program`, which write or run, and `--files0-from`.
const SORT: &str = "-b -d -f -g -i -M -h -n -R -r -V -c -C -k= -m -s -t= -u -z --ignore-leading-blanks --dictionary-order --ignore-case \
    --general-numeric-sort --human-numeric-sort --numeric-sort --reverse --version-sort --check=? --key= --merge --stable \
    --field-separator= --unique --zero-terminated --random-sort --month-sort -S= --parallel= --buffer-size= --batch-size= --debug --sort=";
/// Options of `jq`. Left out are `-L` (modules), `--slurpfile`, `--rawfile` and `-f`, which read files that the operands do not name.
const JQ: &str = "-r -c -n -e -s -S -M -C -R -j -a --raw-output --compact-output --null-input --exit-status --slurp --sort-keys \
    --monochrome-output --color-output --raw-input --join-output --ascii-output --tab --indent= --arg== --argjson== --seq --stream \
    --args --jsonargs --raw-output0 --stream-errors";

/// Accepts `printf` with a certain format that sets no variable, as `-v NAME` and `%n` would.
fn plain_format(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let format = seen.operands.first().ok_or("printf without a format")?;
    let text = format
        .known_text()
        .ok_or("the format of printf is not certain")?;
    // `%n` of some shells assigns to a variable, whose name may hold a subscript.
    match text.starts_with('-') || conversions(text).any(|kind| !kind.starts_with(PRINTED)) {
        true => Err(format!("the format {} of printf may do more than print", format.raw).into()),
        false => Ok(()),
    }
}

/// The conversions of a format that only print.
const PRINTED: [char; 20] = [
    's', 'b', 'q', 'c', 'd', 'i', 'u', 'o', 'x', 'X', 'f', 'F', 'e', 'E', 'g', 'G', 'a', 'A', '%',
    '(',
];

/// Iterates over the text behind each `%` of a format, without flags and widths.
fn conversions(format: &str) -> impl Iterator<Item = &str> {
    let mut rest = format;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once('%')?;
        let kind = behind.trim_start_matches(|c: char| c.is_ascii_digit() || "-+ #.'*".contains(c));
        rest = kind.strip_prefix('%').unwrap_or(kind);
        Some(kind)
    })
}

/// Reports whether `printf` may evaluate an argument as arithmetic. zsh does so for number conversions, which can run commands unless the
/// argument is a plain number.
pub(crate) fn evaluates_numbers(words: &[ShellWord]) -> bool {
    let Some((format, rest)) = words.split_first() else {
        return false;
    };
    let texts = conversions(&format.text).all(|kind| kind.starts_with(['s', 'b', 'q', 'c', '%']));
    let number = |word: &ShellWord| {
        word.known_text()
            .is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    format.text.contains('*') || !texts && !rest.iter().all(number)
}

/// Rejects jq scripts that may import modules, which jq reads from any folder.
fn no_modules(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let script = seen
        .operands
        .first()
        .map(|word| word.text.as_str())
        .unwrap_or_default();
    if script.trim().is_empty()
        && seen
            .operands
            .first()
            .is_some_and(|word| word.known_text().is_none())
    {
        return Err("how the jq script begins is not certain".into());
    }
    match ["import", "include", "input_filename", "modulemeta"]
        .iter()
        .find(|word| script.contains(**word))
    {
        Some(word) => Err(format!("the jq script holds {word}").into()),
        None => Ok(()),
    }
}

/// Accepts only operands that are certain and of plain characters.
fn only_plain_operands(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./+".contains(c))
    };
    match seen
        .operands
        .iter()
        .find(|word| !word.known_text().is_some_and(plain))
    {
        Some(word) => Err(format!("{} is not a plain name", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts only formats (`date +%Y`) as operands: `date 010100002030` sets the clock.
fn only_formats(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen
        .operands
        .iter()
        .find(|word| !word.known_prefix().starts_with('+'))
    {
        Some(word) => Err(format!("date may set the clock to {}", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts only clusters of letters without `e`, which shows the environment of processes.
fn only_ps_letters(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |text: &str| {
        text.chars()
            .all(|c| "auxwfljT".contains(c) || c.is_ascii_digit())
    };
    match seen
        .operands
        .iter()
        .find(|word| !word.known_text().is_some_and(plain))
    {
        Some(word) => Err(format!(
            "{} is not understood, so the command needs an approval",
            word.raw
        )
        .into()),
        None => Ok(()),
    }
}

/// Rejects operands such as `+5`, which some versions take for a number and others for a file.
fn no_plus_files(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen
        .operands
        .iter()
        .find(|word| word.known_prefix().starts_with('+'))
    {
        Some(word) => Err(format!("{} is a number to some programs", word.raw).into()),
        None => Ok(()),
    }
}

/// Checks the first operand of `rg --files PATH` as a path. The grammar takes it for a pattern, which `--files` does not have.
fn no_outside_listing(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let outside = |word: &&&ShellWord| {
        word.known_prefix().starts_with('/') || word.text.split('/').any(|part| part == "..")
    };
    match seen
        .operands
        .first()
        .filter(|word| seen.has_option(&["--files"]) && outside(word))
    {
        Some(word) => Err(format!("{} may lie outside of the workspace", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts only numbers as operands: bc would run a file as a program.
fn only_numbers(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match seen
        .operands
        .iter()
        .find(|word| !word.known_text().is_some_and(number))
    {
        Some(word) => Err(format!(
            "{} is not understood, so the command needs an approval",
            word.raw
        )
        .into()),
        None => Ok(()),
    }
}

/// Rejects `@file` operands, from which binutils reads more options.
fn no_responses(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen
        .operands
        .iter()
        .find(|word| matches!(word.known_prefix().chars().next(), None | Some('@')))
    {
        Some(word) => Err(format!("{} may hold options", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts only the forms of `ip` that show something.
fn only_ip_listings(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    /// The objects of `ip` that have a listing.
    const OBJECTS: [&str; 12] = [
        "a", "addr", "address", "l", "link", "r", "route", "n", "neigh", "rule", "maddr", "netns",
    ];
    let known: Vec<_> = seen.operands.iter().map(|word| word.known_text()).collect();
    match known.as_slice() {
        [Some(object)] | [Some(object), Some("show" | "list" | "ls")]
            if OBJECTS.contains(object) =>
        {
            Ok(())
        }
        [Some(object), Some("show"), Some("dev"), Some(_)] if OBJECTS.contains(object) => Ok(()),
        _ => Err("ip may change how the network is set".into()),
    }
}

/// Requires `-n`, without which names are resolved over the network.
fn only_numeric_output(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    if seen.has_option(&["-n", "--numeric"]) {
        Ok(())
    } else {
        Err("without -n it asks the network for names".into())
    }
}

/// Accepts only databases that are local files; others may be resolved over the network.
fn only_local_databases(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen.operands.first().and_then(|word| word.known_text()) {
        Some("passwd" | "group" | "services" | "protocols" | "networks" | "rpc") => Ok(()),
        _ => Err("getent may ask the network".into()),
    }
}

/// Accepts only capabilities of `tput` that print a value; others change the terminal.
fn only_terminal_queries(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    match seen.operands.as_slice() {
        [word]
            if matches!(
                word.known_text(),
                Some("cols" | "lines" | "colors" | "longname")
            ) =>
        {
            Ok(())
        }
        _ => Err("tput may change the terminal".into()),
    }
}

/// Requires an option, since dpkg's actions are options and only those that list are in its row.
fn requires_option(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    if seen.options.is_empty() {
        Err("dpkg may install".into())
    } else {
        Ok(())
    }
}

/// Rejects `bat cache`, which is a subcommand that rebuilds the cache.
fn no_cache(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let certain = |word: &ShellWord| {
        word.known_text().is_some_and(|name| name != "cache") || word.text.contains(['.', '/'])
    };
    match seen.operands.first().filter(|word| !certain(word)) {
        Some(word) => Err(format!("{} may be a command of bat", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts only plain file names: zgrep and its relatives are shell scripts that put the names into commands.
fn only_plain_file_names(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
    };
    // The pattern is not put into a command by the scripts.
    let given = usize::from(!seen.has_option(&["-e="]));
    match seen
        .operands
        .iter()
        .skip(given)
        .find(|word| !word.known_text().is_some_and(plain))
    {
        Some(word) => Err(format!("{} is not a plain name", word.raw).into()),
        None => Ok(()),
    }
}

/// Accepts `tee` only with outputs that are not files.
fn only_null(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let harmless = |word: &ShellWord| {
        matches!(
            word.known_text(),
            Some("/dev/null" | "/dev/stdout" | "/dev/stderr")
        )
    };
    match seen.operands.iter().find(|word| !harmless(word)) {
        Some(word) => Err(format!("tee writes {}", word.raw).into()),
        None => Ok(()),
    }
}

/// Rejects options behind a file, which some versions take for a second file, and that one is written.
fn options_first(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    if seen.option_after_operand {
        Err("an option behind a file may be a file that is written".into())
    } else {
        Ok(())
    }
}

/// Accepts `unzip` only with `-l`, and only local archives.
fn only_zip_listing(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = seen
        .operands
        .iter()
        .all(|word| word.known_text().is_some_and(|name| !name.contains(':')));
    options_first(seen)?;
    if plain && seen.has_option(&["-l"]) {
        Ok(())
    } else {
        Err("it may unpack or fetch".into())
    }
}

/// Accepts `tar` only if it lists a local archive: `tar -tf FILE` or `tar tf FILE`.
fn only_tar_listing(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    let plain = |name: Option<&str>| {
        name.is_some_and(|name| {
            !name.contains(':')
                && !name.starts_with('/')
                && name.split('/').all(|part| part != "..")
        })
    };
    let bundled = |word: &&ShellWord| {
        word.known_text().is_some_and(|text| {
            text.starts_with('t') && text.bytes().all(|byte| b"tvzjJf".contains(&byte))
        })
    };
    // `tar tf FILE` takes its options without a dash as the first word.
    let listed = match seen.operands.as_slice() {
        [] => {
            let mut names = seen
                .option_values("-f=@")
                .chain(seen.option_values("--file=@"))
                .map(|value| value.known_text());
            seen.has_option(&["-t", "--list"])
                && names.all(|name| name.is_some_and(|name| !name.contains(':')))
        }
        [bundle, file] => {
            seen.options.is_empty()
                && bundled(bundle)
                && bundle.text.ends_with('f')
                && plain(file.known_text())
        }
        _ => false,
    };
    if listed {
        Ok(())
    } else {
        Err("it may unpack or fetch".into())
    }
}

/// Accepts compressors only if they write to standard output, list or test.
fn only_to_stdout(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    // With both `-l` and `-d`, some versions decompress.
    let lists = seen.has_option(&["-l", "--list", "-t", "--test"])
        && !seen.has_option(&["-d", "--decompress"]);
    match seen.operands.is_empty() || lists || seen.has_option(&["-c", "--stdout"]) {
        true => Ok(()),
        false => Err("it puts one file into the place of another".into()),
    }
}

/// Requires exactly one option, which is the one for the version.
fn only_version(seen: &ParsedArguments<'_>) -> Result<(), AskReason> {
    if seen.options.len() == 1 {
        Ok(())
    } else {
        Err("it runs code".into())
    }
}

/// Reports whether a line may assign any value to a variable. Variables that the shell or programs use have upper-case names,
/// with a few exceptions.
pub(crate) fn may_assign_variable(name: &str) -> bool {
    /// Lower-case variables that the shell or network programs read.
    const USED_BY_PROGRAMS: [&str; 4] = ["histchars", "auto_resume", "http_proxy", "https_proxy"];
    /// Upper-case names that people give to their own variables, and that no shell or common program reads.
    const OWN: [&str; 14] = [
        "FILE", "FILES", "DIR", "NAME", "NUM", "COUNT", "LIMIT", "START", "END", "LINE", "PATTERN",
        "BRANCH", "COMMIT", "HASH",
    ];
    let is_own = name.len() == 1 || OWN.contains(&name);
    is_name(name)
        && (is_own || !name.contains(|c: char| c.is_ascii_uppercase()))
        && !USED_BY_PROGRAMS.contains(&name)
}

/// Reports whether setting a variable that programs use to this value is harmless.
pub(crate) fn is_harmless_assignment(name: &str, value: &str) -> bool {
    /// Variables that change only the language, colors and verbosity of programs, or what they build for.
    const PLAIN: [&str; 23] = [
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "CI",
        "COLUMNS",
        "LINES",
        "RUST_BACKTRACE",
        "RUST_LOG",
        "CARGO_TERM_COLOR",
        "CARGO_INCREMENTAL",
        "NODE_ENV",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "CGO_ENABLED",
        "GOOS",
        "GOARCH",
        "GIT_OPTIONAL_LOCKS",
        "GIT_TERMINAL_PROMPT",
    ];
    match name {
        "PAGER" | "GIT_PAGER" => value == "cat",
        _ => {
            // A value with a slash could be a path that a program loads (`LANGUAGE`, `TERM`).
            (PLAIN.contains(&name) || name.starts_with("LC_"))
                && value
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_.=,:+-".contains(c))
                && !value.starts_with(':')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Access, CommandFacts, ExtraPermissions, PolicyRules, Verdict};
    use super::{BUILTINS, ROWS, find_program};

    /// Each row is the one that checks its names: a name in two rows, or one that is checked elsewhere, would be dead.
    #[test]
    fn no_row_is_dead() {
        let facts = CommandFacts {
            clean_path: true,
            confined: true,
            ..CommandFacts::default()
        };
        for row in ROWS {
            for name in row.names {
                let rows = ROWS.iter().filter(|other| other.names.contains(name));
                assert_eq!(rows.count(), 1, "{name} is in two rows");
                let decision = PolicyRules::default().decide(&Access::Command {
                    command: format!("{name} --version"),
                    facts: facts.clone(),
                    beyond: ExtraPermissions::Nothing,
                });
                let known = format!("{name} only tells");
                let told = decision.segments[0].reason.starts_with(&known);
                // npm and its like are also everyday commands, which need facts.
                let needs_facts = decision.reason.contains("may choose what it runs");
                assert!(
                    told || needs_facts
                        || decision.verdict == Verdict::Ask && row.is_version_only()
                        || decision.segments[0].reason.contains("only reads"),
                    "{name}: {}",
                    decision.segments[0].reason
                );
            }
        }
        for name in BUILTINS {
            assert!(find_program(name).is_some(), "{name}");
        }
    }

    /// An option that is listed twice, or hidden behind another one, is never found.
    #[test]
    fn no_option_is_listed_twice() {
        for row in ROWS {
            let mut seen = std::collections::HashSet::new();
            for option in row.options.split_ascii_whitespace() {
                let name = option.split('=').next().unwrap();
                let style = option.get(name.len()..).unwrap();
                if !seen.insert(name) {
                    let same = row
                        .options
                        .split_ascii_whitespace()
                        .filter(|other| other.split('=').next() == Some(name))
                        .all(|other| other.get(name.len()..) == Some(style));
                    assert!(same, "{:?}: {name} with two meanings", row.names);
                }
            }
        }
    }
}
