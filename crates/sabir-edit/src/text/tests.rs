//! Tests that bytes decode to the expected text and encode to the same bytes again.

use super::*;

#[track_caller]
fn check(bytes: &[u8], name: &str, content: &str) {
    let text = DecodedText::decode(bytes).unwrap_or_else(|error| panic!("{bytes:?}: {error}"));
    assert_eq!(
        (text.encoding.name(), text.content.as_str()),
        (name, content)
    );
    assert_eq!(text.encoding.encode(&text.content).unwrap(), bytes);
}

#[track_caller]
fn check_binary(bytes: &[u8], at: usize) {
    assert_eq!(
        DecodedText::decode(bytes),
        Err(NotText::Binary { at }),
        "{bytes:?}"
    );
}

fn utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

#[test]
fn unicode() {
    check(b"", "UTF-8", "");
    check(
        "a\r\né\u{1b}[0m\u{7}".as_bytes(),
        "UTF-8",
        "a\r\né\u{1b}[0m\u{7}",
    );
    check(b"\xef\xbb\xbfa", "UTF-8 with a byte order mark", "a");
    check(
        b"\xef\xbb\xbf\xef\xbb\xbf",
        "UTF-8 with a byte order mark",
        "\u{feff}",
    );
    check(b"\xff\xfea\0\n\0", "UTF-16LE with a byte order mark", "a\n");
    check(b"\xfe\xff\0a\0\n", "UTF-16BE with a byte order mark", "a\n");
    check(b"\xff\xfe", "UTF-16LE with a byte order mark", "");
    let text = "Grüße\r\n𝄞 x\r\n";
    check(&utf16(text, u16::to_le_bytes), "UTF-16LE", text);
    check(&utf16(text, u16::to_be_bytes), "UTF-16BE", text);
}

#[test]
fn stray_bytes() {
    check(
        "é\u{fc}é".as_bytes(),
        "UTF-8",
        "ééé".replacen("éé", "éü", 1).as_str(),
    );
    check(
        b"caf\xc3\xa9 na\xefve",
        "UTF-8 with stray bytes",
        "café na\u{10ffef}ve",
    );
    let mut own = "é\u{10ffef}".as_bytes().to_vec();
    own.push(0xef);
    assert_ne!(
        DecodedText::decode(&own).map(|text| text.encoding),
        Ok(TextEncoding::Utf8Invalid),
        "a text with these characters"
    );
}

#[test]
fn older_encodings() {
    for (encoding, text) in [
        (
            WINDOWS_1252,
            "Der Bär fraß süße Äpfel – für 5 €, naïve façade, über größere Häuser.\r\n",
        ),
        (
            encoding_rs::WINDOWS_1251,
            "Съешь же ещё этих мягких французских булок, да выпей чаю.\n",
        ),
        (
            encoding_rs::KOI8_U,
            "Широкая электрификация южных губерний даст мощный толчок подъёму сельского хозяйства.\n",
        ),
        (
            encoding_rs::SHIFT_JIS,
            "これは日本語のテキストです。ファイルを編集します。\n",
        ),
        (
            encoding_rs::EUC_JP,
            "これは日本語のテキストです。ファイルを編集します。\n",
        ),
        (
            encoding_rs::EUC_KR,
            "이것은 한국어 텍스트입니다. 파일을 편집합니다.\n",
        ),
        (
            encoding_rs::BIG5,
            "這是一個繁體中文的文字檔案，我們要編輯它。\n",
        ),
        (
            encoding_rs::GBK,
            "这是一个简体中文的文本文件，我们要编辑它。\n",
        ),
    ] {
        let bytes = encode_legacy(encoding, text).unwrap();
        check(&bytes, encoding.name(), text);
    }
    check(b"na\xefve", "windows-1252", "naïve");
}

#[test]
fn binary_stays_binary() {
    check_binary(b"a\0b", 1);
    check_binary(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0>\0", 7);
    check_binary(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 8);
    check_binary(b"\x1f\x8b\x08\x08\xff", 1);
    check_binary(b"\xff\xfe\0\0a\0\0\0", 2);
    check_binary(b"\xff\xfea", 0);
    check_binary(b"\xff\xfea\0\0\0", 3);
}

#[test]
fn characters_that_are_missing() {
    let text = DecodedText::decode(b"na\xefve").unwrap();
    let error = text.encoding.encode("naïve → x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "'→' cannot be written in windows-1252, the encoding of the file"
    );
    assert_eq!(
        text.encoding.encode("na\u{ef}f €").unwrap(),
        b"na\xeff \x80"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn decoded_bytes_are_encoded_unchanged(
        mark in proptest::sample::select(vec![&b""[..], MARK, MARK_LE, MARK_BE]),
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
    ) {
        let bytes = [mark, bytes.as_slice()].concat();
        if let Ok(text) = DecodedText::decode(&bytes) {
            proptest::prop_assert_eq!(text.encoding.encode(&text.content).unwrap(), bytes);
        }
    }

    #[test]
    fn nearly_valid_text_is_encoded_unchanged(bytes in proptest::collection::vec(
        proptest::sample::select(b"ab \n\r\xc3\xa9\xe2\x82\xac\xef\xbb\xbf\x81\x40\xa1\xfe\xff\xf4\x8f\xbc\x80\x1b$BJ".to_vec()), 0..30,
    )) {
        if let Ok(text) = DecodedText::decode(&bytes) {
            proptest::prop_assert_eq!(text.encoding.encode(&text.content).unwrap(), bytes);
        }
    }

    #[test]
    fn utf_16_comes_back(text in "[ -~é€\n]{4,40}") {
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            proptest::prop_assert_eq!(DecodedText::decode(&utf16(&text, order)).ok().and_then(|read| {
                read.encoding.encode(&read.content).ok()
            }).unwrap_or_else(|| utf16(&text, order)), utf16(&text, order));
        }
    }
}

#[test]
fn a_list_whose_items_end_with_nul_is_no_utf_16() {
    let numbers: Vec<u8> = (100..140)
        .flat_map(|n| format!("{n}\0").into_bytes())
        .collect();
    let letters: Vec<u8> = (b'a'..=b'z').flat_map(|letter| [letter, 0]).collect();
    let names = b"a\0b.c\0src\0lib.rs\0f.txt\0g.txt\0h\0i\0j\0k\0".to_vec();
    for bytes in [numbers, letters, names] {
        let found = DecodedText::decode(&bytes);
        assert!(matches!(found, Err(NotText::Binary { .. })), "{found:?}");
    }
    let text: Vec<u8> = "two words, a line\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        DecodedText::decode(&text).unwrap().encoding,
        TextEncoding::Utf16Le
    );
}
