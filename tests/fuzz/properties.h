// What must hold for every input of the parsers, well-formed or not; a violation stops the process.
// libFuzzer and the ordinary tests run the same checks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace runnel {

// Malformed input is refused with INVALID_ARGUMENT and one short printable line that starts with
// the file's name.
void check_refusal(const Status& status, const std::string& file);

// Parses JSON. Refused: as below. Accepted: the tree is within the limits, and what is written of
// it reads back as the same tree. True when it was accepted.
bool check_json(std::string_view text);

// Parses a config.json. Refused: INVALID_ARGUMENT with one short printable line that starts with
// the file's name. Accepted: every size is within its limit, derived sizes do not overflow and
// agree with the tensors, and what spec_to_json() writes reads back as the same spec. True when it
// was accepted.
bool check_spec(std::string_view text);

// Opens a safetensors file of these bytes. Refused: as above. Accepted: the tensors tile the data,
// each takes the bytes of its shape, a header written from what was read reads back the same, and
// reading a tensor gives finite numbers or an error. True when it was accepted.
bool check_safetensors(std::string_view file);

// Parses a GGUF file of these bytes. Refused: as above. Accepted: the tensors lie in the file one
// after another, and reading one gives finite numbers or an error; the vocabulary is refused as
// above, or there is none, or its values become bytes. True when it was accepted.
bool check_gguf(std::string_view file);

// Parses a tokenizer.json, in which the first "@" stands for a vocabulary of every byte and a few
// words. Refused: as above. Accepted: texts of all kinds become values that there are, and these
// the same text again, white space and the form of its characters aside. True when it was accepted.
bool check_tokenizer(std::string_view text);

// Parses a file of keys. Refused: as above. Accepted: names and quotas are within their limits, no
// key is there twice, and what keys_text() writes reads back as the same entries. True when it was
// accepted.
bool check_keys(std::string_view text);

// Reads a state file, its checksums and its digest made to hold, in two pieces cut anywhere.
// Refused: as above, and the same in one piece. Accepted: its numbers are finite, and what is
// written of it reads back the same. True when it was accepted.
bool check_state_file(std::string_view file);

// Parses a vocabulary of RWKV, in which the first line "@" stands for one line for every byte.
// Otherwise as check_tokenizer().
bool check_vocabulary(std::string_view text);

// Small well-formed inputs to start from.
std::vector<std::string> json_seeds();
std::vector<std::string> spec_seeds();
std::vector<std::string> safetensors_seeds();
std::vector<std::string> gguf_seeds();
std::vector<std::string> tokenizer_seeds();
std::vector<std::string> key_seeds();
std::vector<std::string> state_seeds();
std::vector<std::string> vocabulary_seeds();

// Words that are worth inserting.
std::span<const std::string_view> spec_words();
std::span<const std::string_view> safetensors_words();
std::span<const std::string_view> gguf_words();
std::span<const std::string_view> tokenizer_words();
std::span<const std::string_view> key_words();
std::span<const std::string_view> state_words();
std::span<const std::string_view> vocabulary_words();

}  // namespace runnel
