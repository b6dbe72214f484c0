//! Tests of the end of a region: at its closing marker, without one, and at other text in its
//! place.

use super::{BARE, HEAD, LONE, STOP, TAG, check};

#[test]
fn a_missing_bracket_is_named() {
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}\n</tool_call> x",
        r#"0:f@-2,9 path@33="a"@34 !malformed_json0@37 end0@49 over@49 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"\n</tool_call>",
        r#"0:f@-2,9 path@33="a"@34 !malformed_json0@36 end0@48 over@48 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":[1\n</tool_call>",
        "0:f@-2,9 path@32=[1\n@35 !malformed_json0@35 end0@47 over@47 next1",
    );
    check(
        TAG,
        "{\"name\":\"f\",\"type\":[1\n</tool_call>",
        "0:f@-2,9 !malformed_json0@22 end0@34 over@34 next1",
    );
    check(
        TAG,
        r#"{"name":"f"</tool_call>"#,
        "0:f@-2,9 !malformed_json0@11 end0@23 over@23 next1",
    );
    check(
        TAG,
        r#"{"name":</tool_call>"#,
        "0:@-2,-2 !missing_name0@-2 !malformed_json0@8 end0@20 over@20 next1",
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}\n<tool_call>",
        r#"0:f@-2,9 path@33="a"@34 !malformed_json0@37 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        r#"{"name":"f","arguments":<path>a</path>}</tool_call>"#,
        "0:f@-2,9 !tag_in_json0@24 end0@24 over@24 next1",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{"path": <path>a</path>}}</tool_call>"#,
        "0:f@-2,9 !tag_in_json0@33 end0@33 over@33 next1",
    );
    check(
        TAG,
        r#"{"name":"f","arguments":<tool_call>"#,
        "0:f@-2,9 !tag_in_json0@24 end0@24 over@24 next1",
    );
    check(
        TAG,
        "[{\"name\":\"f\"}\n</tool_call>",
        "0:f@-2,10 !malformed_json0@14 end0@26 over@26 next1",
    );
    check(TAG, "[</tool_call>", "!malformed_json@1 over@13 next0");
    check(
        BARE,
        r#"{"name":"f","parameters":{"a":1}<|eot|>"#,
        "0:f@-2,9 a@30=1@31 !malformed_json0@32 end0@32 over@32 next1",
    );
    check(
        HEAD,
        r#"{"a": "b"<|end|>"#,
        r#"0:f@-2,-1 a@7="b"@8 !malformed_json0@9 end0@16 over@16 next1"#,
    );
    check(
        HEAD,
        "{'a': 'b'<|end|>",
        "0:f@-2,-1 @0={'a': 'b'@9 !malformed_json0@9 end0@16 over@16 next1",
    );
    check(
        HEAD,
        r#"{"a": 1 < 2}<|end|>"#,
        "0:f@-2,-1 a@6=1@7 !malformed_json0@8 end0@19 over@19 next1",
    );
}

#[test]
fn other_text_in_place_of_the_close() {
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n<tool_call>",
        r#"0:f@-2,9 path@33="a"@34 ?wrong_close0@37 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n[TOOL_CALLS]",
        r#"0:f@-2,9 path@33="a"@34 ?wrong_close0@37 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n[TOO",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@38 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n words",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@39 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n< 5",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@38 end0@37 over@37 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}}]\n</tool_call> x",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@37 end0@37 over@52 next1"#,
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{"path":"a"}}} x"#,
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@37 end0@37 over@39 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n</tool_cal> x",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@38 end0@37 over@49 next1"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n</tool\n> x",
        r#"0:f@-2,9 path@33="a"@34 !wrong_close0@38 end0@37 over@37 next1"#,
    );
    check(
        HEAD,
        r#"{"a": "b"} x"#,
        r#"0:f@-2,-1 a@7="b"@8 !wrong_close0@11 end0@10 over@10 next1"#,
    );
    check(
        STOP,
        r#"{"name":"f","arguments":{}}<|other|>"#,
        "0:f@-2,9 ?wrong_close0@27 end0@27 over@27 next1",
    );
}

#[test]
fn a_call_whose_close_was_not_seen_is_cut() {
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n",
        r#"0:f@-2,9 path@33="a"@34 cut0@38"#,
    );
    check(
        TAG,
        "{\"name\":\"f\",\"arguments\":{\"path\":\"a\"}}\n</tool",
        r#"0:f@-2,9 path@33="a"@34 cut0@44"#,
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{"path":"a"}"#,
        r#"0:f@-2,9 path@33="a"@34 cut0@36"#,
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{"path":"a"#,
        r#"0:f@-2,9 path@33="a"cut0@34"#,
    );
    check(
        TAG,
        r#"{"name":"f","arguments":{"path":"a</tool_call>"#,
        r#"0:f@-2,9 path@33="a</tool_call>"cut0@46"#,
    );
    check(TAG, r#"{"name":"f","id":"x""#, "0:f#x@-2,9 cut0@20");
    check(TAG, r#"{"na"#, "0:@-2,-2 !missing_name0@-2 cut0@4");
    check(TAG, "", "!cut_call@0");
    check(
        TAG,
        r#"[{"name":"f"}, {"name":"g"}"#,
        "0:f@-2,10 end0@13 mark@15 1:g@15,24 cut1@27",
    );
    check(TAG, r#"[{"name":"f"}, "#, "0:f@-2,10 end0@13 !cut_call@15");
    check(HEAD, "", "0:f@-2,-1 cut0@0");
    check(HEAD, r#"{"a": "b"}"#, r#"0:f@-2,-1 a@7="b"@8 cut0@10"#);
    check(LONE, r#"{"a": "b"#, r#"0:f@-2,-1 a@7="b"cut0@8"#);
    check(
        STOP,
        "{\"name\":\"f\",\"arguments\":{}}\n",
        "0:f@-2,9 end0@27",
    );
    check(
        STOP,
        r#"{"name":"f","arguments":{}}<|e"#,
        "0:f@-2,9 cut0@30",
    );
    check(STOP, r#"[{"name":"f","arguments":{}}"#, "0:f@-2,10 cut0@28");
}

#[test]
fn without_a_close_the_json_ends_itself() {
    check(
        BARE,
        "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}\n\n; and",
        "0:f@-2,9 end0@28 mark@30 1:g@30,39 end1@58 over@58 next2",
    );
    check(
        BARE,
        r#" [{"name":"f","parameters":{}}, {"name":"g","parameters":{}}] x"#,
        "0:f@-2,11 end0@30 mark@32 1:g@32,41 end1@61 over@61 next2",
    );
    check(
        BARE,
        r#"{"name":"f","parameters":{}}"#,
        "0:f@-2,9 end0@28 over@28 next1",
    );
    check(
        BARE,
        "{\"name\":\"f\",\"parameters\":{}} \n",
        "0:f@-2,9 end0@28 over@28 next1",
    );
    check(
        BARE,
        "```json\n{\"name\":\"f\",\"parameters\":{}}\n```\nx",
        "0:f@-2,17 end0@36 over@40 next1",
    );
    check(
        LONE,
        r#"{"a": "b"} x"#,
        r#"0:f@-2,-1 a@7="b"@8 end0@10 over@10 next1"#,
    );
    check(
        LONE,
        "```\n{\"a\": \"b\"}\n``` x",
        r#"0:f@-2,-1 a@11="b"@12 end0@14 over@18 next1"#,
    );
    check(
        LONE,
        r#"{"a": "b"}"#,
        r#"0:f@-2,-1 a@7="b"@8 end0@10 over@10 next1"#,
    );
}
