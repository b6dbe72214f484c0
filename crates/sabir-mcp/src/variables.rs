//! Expands variables in the configuration of servers.

/// An error for a variable without a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the variable {0} is not set; set it, or write ${{{0}:-DEFAULT}}")]
pub struct UnsetVariable(pub String);

/// Replaces `${NAME}` and `${NAME:-DEFAULT}` by the values of variables. `${env:NAME}`, as VS Code writes it, means the same as
/// `${NAME}`; `$NAME` without braces stays as it is.
///
/// # Errors
/// When a variable has neither a value nor a default.
pub fn expand_variables(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, UnsetVariable> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once("${") {
        expanded.push_str(before);
        let Some((inner, after)) = opened.split_once('}') else {
            // Not a variable: the text ends before the brace is closed.
            expanded.push_str("${");
            rest = opened;
            continue;
        };
        let inner = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        match variable(name).filter(|value| !value.is_empty()) {
            Some(value) => expanded.push_str(&value),
            None => expanded.push_str(default.ok_or_else(|| UnsetVariable(name.to_owned()))?),
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, UnsetVariable> {
        expand_variables(text, &|name| {
            (name == "HOME").then(|| "/home/me".to_owned())
        })
    }

    #[test]
    fn variables_are_replaced() {
        assert_eq!(expand("${HOME}/x").unwrap(), "/home/me/x");
        assert_eq!(expand("${env:HOME}").unwrap(), "/home/me");
        assert_eq!(expand("${PORT:-8080}!").unwrap(), "8080!");
        assert_eq!(expand("${PORT:-}").unwrap(), "");
        assert_eq!(expand("$HOME and ${").unwrap(), "$HOME and ${");
    }

    #[test]
    fn a_variable_without_value_is_an_error() {
        let error = expand("a ${TOKEN}").unwrap_err();
        assert_eq!(error, UnsetVariable("TOKEN".to_owned()));
        assert!(error.to_string().contains("${TOKEN:-DEFAULT}"), "{error}");
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        let nested = expand_variables("${A}", &|_| Some("${B}".to_owned()));
        assert_eq!(nested.unwrap(), "${B}");
    }
}
