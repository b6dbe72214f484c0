//! Requests to models that read no pictures.
//!
//! A provider refuses the whole request for one, which would end a task because a tool showed a picture. What is left out is
//! said in its place, so that the model can say that it cannot see it.

use sabir_call::{Part, Request};

/// The request without its pictures, and with words about each; `None` where there are none.
pub(crate) fn without_pictures(request: &Request) -> Option<Request> {
    let shows = |part: &Part| match part {
        Part::Image(_) | Part::ImageUrl { .. } => true,
        Part::Result(result) => !result.images.is_empty(),
        _ => false,
    };
    if !request.messages.iter().flat_map(|message| &message.parts).any(shows) {
        return None;
    }
    let mut request = request.clone();
    for part in request.messages.iter_mut().flat_map(|message| &mut message.parts) {
        match part {
            Part::Image(image) => *part = Part::text(words(&image.media_type)),
            Part::ImageUrl { url } => *part = Part::text(words(url)),
            Part::Result(result) => {
                for image in result.images.drain(..) {
                    if !result.content.is_empty() {
                        result.content.push('\n');
                    }
                    result.content.push_str(&words(&image.media_type));
                }
            }
            _ => {}
        }
    }
    Some(request)
}

/// `which`: its type, or its address.
fn words(which: &str) -> String {
    format!("[A picture ({which}) was left out: you cannot read pictures.]")
}

#[cfg(test)]
mod tests {
    use sabir_call::{CallId, CallResult, Ending, Image, Message, Role};

    use super::*;

    #[test]
    fn pictures_become_words() {
        let image = || Image { media_type: "image/png".into(), data: "aGk=".into() };
        let result = |content: &str, images: Vec<Image>| {
            let (id, name, content) = (CallId::new("c"), "look".to_owned(), content.to_owned());
            Part::Result(CallResult { id, name, ending: Ending::Done, content, images })
        };
        let request = |parts: Vec<Part>| Request {
            messages: vec![Message { role: Role::User, parts }, Message::assistant("yes")].into(),
            ..Request::default()
        };
        let told = "[A picture (image/png) was left out: you cannot read pictures.]";
        let blind = without_pictures(&request(vec![
            result("seen", vec![image(), image()]),
            result("", vec![image()]),
            Part::Image(image()),
            Part::text("what is it?"),
        ]));
        let expected = request(vec![
            result(&format!("seen\n{told}\n{told}"), Vec::new()),
            result(told, Vec::new()),
            Part::text(told),
            Part::text("what is it?"),
        ]);
        assert_eq!(blind.map(|blind| blind.messages), Some(expected.messages));
        assert!(without_pictures(&request(vec![result("x", Vec::new()), Part::text("y")])).is_none());
    }
}
