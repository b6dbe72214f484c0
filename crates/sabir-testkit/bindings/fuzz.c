// Feeds random input to every function of the C interface: random bytes, pieces of markup, wrong options, null pointers, handles that
// have finished. Usage: fuzz COUNT SEED. Any crash, leak or SABIR_STATUS_INTERNAL_ERROR is a failure.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sabir.h"

static uint64_t state;

static size_t below(size_t end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return end ? (size_t)(state >> 33) % end : 0;
}

static const char *PIECES[] = {
    "<look>", "</look>", "<path>", "</path>", "a", "\n", "<tool_call>", "</tool_call>", "{\"name\": \"look\", ",
    "\"arguments\": {\"path\": \"x\"}}", "[TOOL_CALLS]", "<|python_tag|>", "look(path='a')", "<function=look>", "</function>",
    "<parameter=path>", "</parameter>", "<invoke name=\"look\">", "</invoke>", "```", "<think>", "</think>", "\xff", "\xe2\x80", "\\u00",
    "\"", "{", "}", "[", "]", "<|tool_call|>", "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "*** Begin Patch\n", "data: {\"choices\": [",
};
static const char *OPTIONS[] = {
    "", "{}", "{\"tools\": [{\"name\": \"look\", \"input_schema\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"}}}}]}",
    "{\"dialect\": \"cline\", \"tools\": [{\"name\": \"look\", \"inputSchema\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"integer\"}}}}], \"marks\": true}",
    "{\"dialect\": \"hermes\", \"whole_calls\": true, \"single_call\": true, \"tools\": [{\"name\": \"look\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]}",
    "{\"dialect\": 3}", "[", "{\"tools\": {}}", "{\"prefill\": \"<think>\", \"closes_last_call\": true}",
};
static const char *FUNCTIONS[] = {"parse", "check", "explain", "detect", "guess_tools", "decode", "render", "prompt", "lint", "edit", "dialects", "none"};
static const char *REASONS[] = {"", "ended", "limit", "broken", "cancelled", "odd"};

#define PICK(list) list[below(sizeof list / sizeof *list)]

static size_t random_text(uint8_t *text, size_t room) {
    size_t length = 0;
    for (size_t i = below(20); i > 0; i--) {
        const char *piece = PICK(PIECES);
        size_t size = strlen(piece);
        if (length + size > room) break;
        memcpy(text + length, piece, size);
        length += size;
        if (below(8) == 0 && length < room) text[length++] = (uint8_t)below(256);
    }
    return length;
}

static void check(SabirStatus status, SabirText *text) {
    if (status == SABIR_STATUS_INTERNAL_ERROR) {
        fprintf(stderr, "internal error: %s\n", (const char *)text->data);
        abort();
    }
    if (!text->data || strlen((const char *)text->data) > text->length) abort();
    sabir_text_free(text);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    size_t inputs = strtoull(arguments[1], NULL, 10);
    state = strtoull(arguments[2], NULL, 10);
    uint8_t text[512];
    SabirReader *reader = NULL;
    SabirDeltas *deltas = NULL;
    for (size_t i = 0; i < inputs; i++) {
        SabirText out = {0};
        size_t length = random_text(text, sizeof text);
        const char *options = PICK(OPTIONS), *reason = PICK(REASONS), *function = PICK(FUNCTIONS);
        switch (below(16)) {
        case 0:
            sabir_reader_free(reader);
            check(sabir_reader_new((const uint8_t *)options, strlen(options), &reader, &out), &out);
            break;
        case 1:
            sabir_deltas_free(deltas);
            check(sabir_deltas_new((const uint8_t *)options, strlen(options), &deltas, &out), &out);
            break;
        case 2:
            check(sabir_reader_finish(reader, (const uint8_t *)reason, strlen(reason), &out), &out);
            break;
        case 3:
            check(sabir_deltas_finish(deltas, (const uint8_t *)reason, strlen(reason), &out), &out);
            break;
        case 4:
            check(sabir_run((const uint8_t *)function, strlen(function), text, length, (const uint8_t *)options, strlen(options), &out), &out);
            break;
        case 5:
            check(sabir_run(NULL, below(2), NULL, below(2), text, length, &out), &out);
            break;
        case 6: case 7: case 8: case 9:
            check(sabir_deltas_push(deltas, text, length, &out), &out);
            break;
        default:
            check(sabir_reader_push(reader, below(50) ? text : NULL, length, &out), &out);
        }
    }
    sabir_reader_free(reader);
    sabir_deltas_free(deltas);
    printf("%zu inputs\n", inputs);
    return 0;
}
