// Reads the streams of crates/sabir-bindings/examples/streams.rs through the C interface and prints their events.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sabir.h"

static const size_t CHUNK_SIZES[] = {1, 3, 16, 256, 0};

static void fail(const char *what, const SabirText *text) {
    fprintf(stderr, "%s: %s\n", what, text && text->data ? (const char *)text->data : "");
    exit(1);
}

// Reads one text of a record; returns 0 at the end of the file.
static int read_text(uint8_t **text, size_t *length) {
    uint8_t head[4];
    if (fread(head, 1, 4, stdin) != 4) return 0;
    *length = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    *text = malloc(*length + 1);
    if (!*text || fread(*text, 1, *length, stdin) != *length) fail("a record is cut", NULL);
    return 1;
}

static void print_events(SabirStatus status, SabirText *text, int even_empty) {
    if (status != SABIR_STATUS_OK) fail("reading failed", text);
    if (even_empty || text->length > 2) {
        fwrite(text->data, 1, text->length, stdout);
        putchar('\n');
    }
    sabir_text_free(text);
}

int main(void) {
    uint8_t *options, *stream;
    size_t options_length, stream_length;
    while (read_text(&options, &options_length)) {
        if (!read_text(&stream, &stream_length)) fail("a record is cut", NULL);
        for (size_t i = 0; i < sizeof CHUNK_SIZES / sizeof *CHUNK_SIZES; i++) {
            SabirReader *reader = NULL;
            SabirText text = {0};
            if (sabir_reader_new(options, options_length, &reader, &text) != SABIR_STATUS_OK) fail("no reader", &text);
            sabir_text_free(&text);
            size_t size = CHUNK_SIZES[i] ? CHUNK_SIZES[i] : stream_length;
            for (size_t at = 0; at < stream_length; at += size) {
                size_t length = stream_length - at < size ? stream_length - at : size;
                print_events(sabir_reader_push(reader, stream + at, length, &text), &text, 0);
            }
            print_events(sabir_reader_finish(reader, NULL, 0, &text), &text, 1);
            puts("--");
            sabir_reader_free(reader);
        }
        free(options);
        free(stream);
    }
    return 0;
}
