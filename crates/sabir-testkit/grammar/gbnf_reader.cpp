// Lets llama.cpp's own reader of GBNF decide about texts. Compiled with src/llama-grammar.cpp of llama.cpp and nothing else of it: the
// functions of a vocabulary that it refers to are defined here and never called, since the grammars name no tokens.
//
// Reads commands: `G LENGTH` or `T LENGTH`, a line feed, and LENGTH bytes. G loads a grammar, T asks about a text. Answers each with a
// line: `read` or `error`, `yes` or `no`. What the reader complains about goes to standard error.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

#include "llama-grammar.h"
#include "llama-impl.h"
#include "llama-vocab.h"

void llama_log_internal(ggml_log_level, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

extern "C" void ggml_abort(const char *file, int line, const char *, ...) {
    fprintf(stderr, "%s:%d: aborted\n", file, line);
    abort();
}

const std::string &llama_vocab::token_to_piece(llama_token) const { throw std::logic_error("there is no vocabulary"); }
bool llama_vocab::is_eog(llama_token) const { throw std::logic_error("there is no vocabulary"); }
int32_t llama_vocab::tokenize(const char *, int32_t, llama_token *, int32_t, bool, bool) const {
    throw std::logic_error("there is no vocabulary");
}

static bool accepts(llama_grammar *grammar, const std::string &text) {
    try {
        // As one token; the reader decodes UTF-8 and advances by characters. It throws where no rule can go on.
        llama_grammar_accept_token(*grammar, 0, text);
    } catch (const std::runtime_error &) {
        return false;
    }
    for (const auto &stack : llama_grammar_get_stacks(grammar)) {
        if (stack.empty()) return true;
    }
    return false;
}

int main() {
    std::ios::sync_with_stdio(false);
    llama_grammar *grammar = nullptr;
    char command;
    size_t length;
    while (std::cin >> command >> length) {
        std::cin.ignore(1);
        std::string text(length, '\0');
        if (!std::cin.read(&text[0], static_cast<std::streamsize>(length))) return 1;
        const char *answer;
        if (command == 'G') {
            if (grammar) llama_grammar_free_impl(grammar);
            grammar = llama_grammar_init_impl(nullptr, text.c_str(), "root", false, nullptr, 0, nullptr, 0);
            answer = grammar ? "read" : "error";
        } else {
            if (!grammar) return 1;
            llama_grammar *copy = llama_grammar_clone_impl(*grammar);
            answer = accepts(copy, text) ? "yes" : "no";
            llama_grammar_free_impl(copy);
        }
        std::cout << answer << std::endl;
    }
    if (grammar) llama_grammar_free_impl(grammar);
    return 0;
}
