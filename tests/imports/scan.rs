//! The search for imports in sources: `use` lines, and paths from `crate` or `super` in code.

use std::path::PathBuf;

/// A file of a crate's `src`.
pub(crate) struct Source {
    /// From `src`.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// The path of its module. (`no_x.rs` is the module `x` of systems that have no such thing.)
    pub(crate) fn module(&self) -> Vec<String> {
        let whole = self.path.with_extension("");
        let names = whole.iter().map(|part| part.to_str().expect("a name"));
        let names = names.map(|name| name.strip_prefix("no_").unwrap_or(name).to_owned());
        names.filter(|name| name != "mod").collect()
    }
}

/// A name that a module has from another one.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// The module that has it, from the root of the crate.
    pub(crate) from: Vec<String>,
    /// The name, from the root of the crate.
    pub(crate) path: Vec<String>,
    /// It stands in a `pub use`.
    pub(crate) is_public: bool,
}

/// What modules import from each other, as programs are built: without tests. `unit` names the
/// place of a module in the order; imports inside one place do not count.
pub(crate) fn imports(files: &[Source], unit: &dyn Fn(&[String]) -> String) -> Vec<Import> {
    let mut scans: Vec<(&Source, Scan)> = Vec::new();
    for file in files {
        let mut scan = Scan::new(file.module());
        scan.run(&tokens(&blanked(&file.text)));
        scans.push((file, scan));
    }
    let left_out: Vec<Vec<String>> =
        scans.iter().flat_map(|(_, scan)| scan.left_out.iter().cloned()).collect();
    let mut found = Vec::new();
    for (file, scan) in scans {
        let module = file.module();
        if left_out.iter().any(|other| module.starts_with(other)) {
            continue;
        }
        let others = scan.found.into_iter().filter(|(_, path, _)| unit(path) != unit(&module));
        found.extend(others.map(|(line, path, is_public)| Import {
            file: file.path.clone(),
            line,
            from: module.clone(),
            path,
            is_public,
        }));
    }
    found
}

/// The text with spaces instead of comments and literals; lines stay lines.
fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let before = out.chars().next_back();
        let is_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '"' => string(rest),
            'r' | 'b' | 'c' if !is_word => raw_string(rest).unwrap_or(0),
            '\'' => letter(rest).unwrap_or(0),
            _ => 0,
        };
        if len == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..len].chars().map(|c| if c == '\n' { c } else { ' ' }));
            rest = &rest[len..];
        }
    }
    out
}

/// The length of a comment in `/*`, which can have others inside.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string, if one begins here.
fn raw_string(text: &str) -> Option<usize> {
    let head = text.trim_start_matches(['b', 'c']).strip_prefix('r')?;
    let quoted = head.trim_start_matches('#');
    let hashes = head.len() - quoted.len();
    let start = text.len() - quoted.strip_prefix('"')?.len();
    let end = format!("\"{}", "#".repeat(hashes));
    Some(start + text[start..].find(&end)? + end.len())
}

/// The length of a character's literal, if this is no lifetime.
fn letter(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next();
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// A word, `::`, or one sign; and its line.
type Token<'a> = (usize, &'a str);

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
            let len = match first {
                _ if is_in_word(first) => rest.find(|c| !is_in_word(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            found.push((number, &rest[..len]));
            rest = rest[len..].trim_start();
        }
    }
    found
}

/// A walk over the tokens of a file.
struct Scan {
    /// The module at hand: the file's, and those inside it.
    module: Vec<String>,
    /// How many braces are open, and with how many each inner module began.
    depth: usize,
    inner: Vec<usize>,
    found: Vec<(usize, Vec<String>, bool)>,
    /// Modules in other files that only tests have.
    left_out: Vec<Vec<String>>,
}

impl Scan {
    fn new(module: Vec<String>) -> Scan {
        Scan { module, depth: 0, inner: Vec::new(), found: Vec::new(), left_out: Vec::new() }
    }

    fn run(&mut self, tokens: &[Token<'_>]) {
        let word = |i: usize| tokens.get(i).map_or("", |token| token.1);
        let mut i = 0;
        while i < tokens.len() {
            match word(i) {
                "#" if word(i + 1) == "!" && word(i + 3) == "cfg" && !can_be(tokens, i + 5).0 => {
                    return;
                }
                "#" if word(i + 2) == "cfg" && !can_be(tokens, i + 4).0 => {
                    i = self.skip(tokens, i);
                    continue;
                }
                "mod" if word(i + 2) == "{" => {
                    self.module.push(word(i + 1).to_owned());
                    self.inner.push(self.depth);
                    i += 1; // its name may be a keyword's
                }
                "{" => self.depth += 1,
                "}" => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.inner.last() == Some(&self.depth) {
                        self.inner.pop();
                        self.module.pop();
                    }
                }
                "crate" | "super" | "self"
                    if word(i + 1) == "::" && i > 0 && !["in", "::"].contains(&word(i - 1)) =>
                {
                    let is_public = word(i - 1) == "use" && i > 1 && word(i - 2) == "pub";
                    i = self.path(tokens, i, &[], is_public);
                    continue;
                }
                _ => {}
            }
            i += 1;
        }
    }

    /// Notes the paths that begin at token `i`, behind the names of `prefix`. Answers what follows.
    fn path(
        &mut self,
        tokens: &[Token<'_>],
        mut i: usize,
        prefix: &[String],
        is_public: bool,
    ) -> usize {
        let word = |i: usize| tokens.get(i).map_or("", |token| token.1);
        let line = tokens[i].0;
        let mut path = prefix.to_vec();
        loop {
            match word(i) {
                "{" => {
                    i += 1;
                    while !["}", ""].contains(&word(i)) {
                        i = self.path(tokens, i, &path, is_public);
                        i += usize::from(word(i) == ",");
                    }
                    return i + 1;
                }
                "*" => {
                    i += 1;
                    break;
                }
                "crate" => path.clear(),
                "self" if prefix.is_empty() && path.is_empty() => path = self.module.clone(),
                "self" => {}
                "super" if path.is_empty() => {
                    path = self.module.clone();
                    path.pop();
                }
                "super" => drop(path.pop()),
                name => path.push(name.to_owned()),
            }
            i += 1;
            let next = word(i + 1).chars().next().unwrap_or('<');
            let goes_on = next.is_alphanumeric() || "_{*".contains(next);
            if word(i) != "::" || !goes_on {
                break;
            }
            i += 1;
        }
        if word(i) == "as" {
            i += 2;
        }
        if !path.is_empty() {
            self.found.push((line, path, is_public));
        }
        i
    }

    /// The token behind the item whose attributes begin at `i`; notes the module, if it is one.
    fn skip(&mut self, tokens: &[Token<'_>], mut i: usize) -> usize {
        let word = |i: usize| tokens.get(i).map_or("", |token| token.1);
        while word(i) == "#" {
            i = behind_group(tokens, i + 1);
        }
        if word(i) == "pub" {
            i += 1;
            if word(i) == "(" {
                i = behind_group(tokens, i);
            }
        }
        if word(i) == "mod" && word(i + 2) == ";" {
            let mut module = self.module.clone();
            module.push(word(i + 1).to_owned());
            self.left_out.push(module);
        }
        const ITEMS: [&str; 12] = [
            "fn", "mod", "impl", "struct", "enum", "trait", "type", "const", "static", "unsafe",
            "extern", "use",
        ];
        let (is_item, is_use) = (ITEMS.contains(&word(i)), word(i) == "use");
        while i < tokens.len() {
            match word(i) {
                ";" => return i + 1,
                "," if !is_item => return i + 1,
                "}" | ")" | "]" => return i,
                "{" if !is_use => return behind_group(tokens, i),
                "{" | "(" | "[" => i = behind_group(tokens, i),
                _ => i += 1,
            }
        }
        i
    }
}

/// The token behind the group that opens at `i`.
fn behind_group(tokens: &[Token<'_>], mut i: usize) -> usize {
    let mut depth = 0;
    while let Some((_, word)) = tokens.get(i) {
        i += 1;
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    i
}

/// Whether the condition at `i` can be true and can be false in a build that is neither of tests
/// nor of documents; and what follows it.
fn can_be(tokens: &[Token<'_>], i: usize) -> (bool, bool, usize) {
    let word = |i: usize| tokens.get(i).map_or("", |token| token.1);
    let name = word(i);
    if !["all", "any", "not"].contains(&name) {
        let has_value = word(i + 1) == "=";
        let never = ["test", "doc", "doctest"].contains(&name);
        return (!never, true, i + if has_value { 2 } else { 1 });
    }
    let (mut all, mut any, mut at) = ((true, false), (false, true), i + 2);
    while !["", ")"].contains(&word(at)) {
        let (yes, no, next) = can_be(tokens, at);
        all = (all.0 && yes, all.1 || no);
        any = (any.0 || yes, any.1 && no);
        at = next + usize::from(word(next) == ",");
    }
    let (yes, no) = match name {
        "all" => all,
        "any" => any,
        _ => (all.1, all.0),
    };
    (yes, no, at + 1)
}
