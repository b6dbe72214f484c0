//! Parses nested XML elements in a raw value, the form of arrays and objects in XML dialects.
//!
//! Supported: a run of elements with only white space between them, attributes in single or double quotes, self-closing
//! elements, elements inside elements of the same name.
//!
//! Unsupported, so that the whole text is rejected: text between elements, comments, processing instructions, declared
//! namespaces. Entities are never decoded: a value is exactly the text that the model wrote.
//!
//! Grammar as implemented: `ws (element ws)*`, with `element = "<" name (ws attr)* ws? ("/>" | ">" body "</" name ws? ">")`
//! and `attr = name ws? "=" ws? quoted`. The body ends at the first closing tag at its own depth that is followed by a
//! tag or the end; a closing tag that is followed by text is content.

/// An element. Its body is parsed only when its children are requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct XmlElement<'a> {
    pub(crate) name: &'a str,
    pub(crate) attributes: Vec<(&'a str, &'a str)>,
    body: &'a str,
}

impl<'a> XmlElement<'a> {
    /// Returns the body without the pair of newlines that wraps it, if there is one.
    pub(crate) fn text(&self) -> &'a str {
        strip_wrapper_newlines(self.body)
    }

    /// Parses the body as a run of elements; `None` if it contains text.
    pub(crate) fn child_elements(&self) -> Option<Vec<XmlElement<'a>>> {
        parse_elements(self.body)
    }
}

/// Parses a text that consists of elements only; `None` if it contains anything else. An empty text has no elements.
///
/// Children are parsed only on request, level by level. Each level scans its bytes once, and the
/// caller bounds the levels, so the total work is linear in the text.
pub(crate) fn parse_elements(text: &str) -> Option<Vec<XmlElement<'_>>> {
    let mut rest = text.trim_ascii_start();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (element, after) = parse_element(rest)?;
        found.push(element);
        rest = after.trim_ascii_start();
    }
    Some(found)
}

/// Removes one newline at the start and one at the end if both are there: the wrapper rule of the XML dialects. Only a pair is layout; a
/// single newline belongs to the value, and of several newlines only the outermost pair is removed.
fn strip_wrapper_newlines(body: &str) -> &str {
    let inner = body
        .strip_prefix("\r\n")
        .or_else(|| body.strip_prefix('\n'));
    inner
        .and_then(|inner| {
            inner
                .strip_suffix("\r\n")
                .or_else(|| inner.strip_suffix('\n'))
        })
        .unwrap_or(body)
}

/// Parses one element at the start of the text; returns it with the rest of the text.
fn parse_element(text: &str) -> Option<(XmlElement<'_>, &str)> {
    let (name, mut rest) = parse_name(text.strip_prefix('<')?)?;
    let mut attributes = Vec::new();
    loop {
        let trimmed = rest.trim_ascii_start();
        if let Some(after) = trimmed.strip_prefix("/>") {
            return Some((
                XmlElement {
                    name,
                    attributes,
                    body: "",
                },
                after,
            ));
        }
        if let Some(inside) = trimmed.strip_prefix('>') {
            let (body, after) = split_body(name, inside)?;
            return Some((
                XmlElement {
                    name,
                    attributes,
                    body,
                },
                after,
            ));
        }
        // An attribute needs white space before it.
        if trimmed.len() == rest.len() {
            return None;
        }
        let (attribute, after) = parse_attribute(trimmed)?;
        attributes.push(attribute);
        rest = after;
    }
}

/// Parses `name="value"` or `name='value'`. The value ends at the same quote, without any escapes.
fn parse_attribute(text: &str) -> Option<((&str, &str), &str)> {
    let (name, rest) = parse_name(text)?;
    let rest = rest
        .trim_ascii_start()
        .strip_prefix('=')?
        .trim_ascii_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (value, after) = rest.strip_prefix(quote)?.split_once(quote)?;
    Some(((name, value), after))
}

/// Splits off a name: a letter or `_`, then also digits, `-`, `.` and `:`.
fn parse_name(text: &str) -> Option<(&str, &str)> {
    let starts = |c: char| c.is_alphabetic() || c == '_';
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let end = text.find(|c: char| !goes_on(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end)?;
    name.chars()
        .next()
        .is_some_and(starts)
        .then_some((name, rest))
}

/// Splits the text after an opening tag into the body and the text after the closing tag.
///
/// Only tags of the same name are counted; every other `<` is content, so that code such as `a < b`
/// or `Vec<T>` needs no escapes. `None` if the element is never closed.
fn split_body<'a>(name: &str, inside: &'a str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0u32;
    let mut rest = inside;
    loop {
        let at = rest.find('<')?;
        let before = inside.len() - rest.len() + at;
        let tag = rest.get(at..)?;
        rest = tag.get(1..)?;
        if let Some(after) = tag
            .strip_prefix("</")
            .and_then(|tag| strip_closing_tag(tag, name))
        {
            let next = after.trim_ascii_start();
            let ends = next.is_empty() || next.starts_with('<');
            // At depth 0 a closing tag before text is content. `rest` only moves forward, so the
            // scan is linear.
            match depth {
                0 if ends => return Some((inside.get(..before)?, after)),
                0 => {}
                _ => depth -= 1,
            }
            rest = after;
        } else if is_opening_tag(rest, name) {
            depth += 1;
        }
    }
}

/// Returns the text after the closing tag of `name`, given the text after its `</`.
fn strip_closing_tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?
        .trim_ascii_start()
        .strip_prefix('>')
}

/// Returns true if `text`, after a `<`, is an opening tag of that name that is not self-closing. A self-closing tag adds no depth, because
/// no closing tag follows.
fn is_opening_tag(text: &str, name: &str) -> bool {
    let Some(rest) = text.strip_prefix(name) else {
        return false;
    };
    let whole = rest.starts_with(|c: char| c == '>' || c.is_ascii_whitespace());
    // Stops at the next `<` as well; otherwise many unclosed tags would make the scan quadratic.
    let end = rest.find(['<', '>']).unwrap_or(rest.len());
    let (inside, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    whole && after.starts_with('>') && !inside.ends_with('/')
}

#[cfg(test)]
mod tests {
    use super::parse_elements;

    fn check(text: &str, expected: &str) {
        let line = |element: &super::XmlElement<'_>| {
            let attributes: String = element
                .attributes
                .iter()
                .map(|(name, value)| format!(" {name}={value}"))
                .collect();
            format!(
                "{}{attributes}:{}",
                element.name,
                element.text().escape_debug()
            )
        };
        let found =
            parse_elements(text).map(|all| all.iter().map(line).collect::<Vec<_>>().join(" | "));
        assert_eq!(found.as_deref().unwrap_or("none"), expected, "{text}");
    }

    #[test]
    fn runs_of_elements() {
        check("", "");
        check(" \n ", "");
        check("<a>1</a>", "a:1");
        check(
            "\n<a>1</a>\n<b x=\"1\" y='2 >'> 2 </b>\n",
            "a:1 | b x=1 y=2 >: 2 ",
        );
        check("<a/><b x=\"1\" />", "a: | b x=1:");
        check("<a>\nx\ny\n</a>", "a:x\\ny");
        check("<a>\nx</a>", "a:\\nx");
        check("<a><a>1</a></a>", "a:<a>1</a>");
        check("<a>1 < 2 && x</a>", "a:1 < 2 && x");
        check("<a>the </a> tag</a>", "a:the </a> tag");
        check("<a>&lt;</a>", "a:&lt;");
    }

    #[test]
    fn anything_else_is_no_run() {
        check("x", "none");
        check("<a>1</a> x", "none");
        check("<a>1", "none");
        check("<a", "none");
        check("<a>1</b>", "none");
        check("<a b>1</a>", "none");
        check("< a>1</a>", "none");
        check("<!-- x --><a>1</a>", "none");
    }
}
