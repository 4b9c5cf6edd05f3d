// Checks properties that the parsers must have for every input, valid or not. A violation aborts
// the process. libFuzzer and the ordinary tests run the same checks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace runnel {

// Malformed input must be refused with INVALID_ARGUMENT and one short printable line that starts
// with the file's name. The functions for files below check this.
void check_refusal(const Status& status, const std::string& file);

// Parses JSON. A refusal is as check_refusal() requires. If it is accepted, the tree is within the
// limits, and the tree written as JSON reads back the same. True if it was accepted.
bool check_json(std::string_view text);

// Parses a config.json. A refusal is as check_refusal() requires. If the text is accepted, every
// size is within its limit, derived sizes do not overflow and agree with the tensors, and the text
// that spec_to_json() makes of the spec reads back as the same spec.
// True if it was accepted.
bool check_spec(std::string_view text);

// Opens a safetensors file of these bytes. If it is accepted, the tensors cover the data without
// gaps, each has the bytes of its shape, the header written again reads back the same, and reading
// a tensor gives finite numbers or an error. True if it was accepted.
bool check_safetensors(std::string_view file);

// Parses a GGUF file of these bytes. If it is accepted, its tensors follow each other in the file,
// and reading one gives finite numbers or an error. Its vocabulary is refused or missing, or its
// values have bytes. True if it was accepted.
bool check_gguf(std::string_view file);

// Parses a tokenizer.json, in which the first "@" is replaced by a vocabulary of all bytes and a
// few words. If it is accepted, texts become valid values, and these become the same text, except
// for white space and the form of its characters. True if it was accepted.
bool check_tokenizer(std::string_view text);

// Parses a key file. If it is accepted, names and quotas are within their limits, no key occurs
// twice, and the text that keys_text() makes of the entries reads back as the same entries. True if
// it was accepted.
bool check_keys(std::string_view text);

// Reads a state file in two pieces, after repairing its checksums and digest. The result must not
// depend on the cut. A refusal is one line. If it is accepted, its numbers are zero or normal, and
// the state written again reads back the same. True if it was accepted.
bool check_state_file(std::string_view file);

// Parses an RWKV vocabulary, in which a first line "@" is replaced by one line for each byte. The
// checks are those of check_tokenizer().
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

// Words for the fuzzer to insert.
std::span<const std::string_view> spec_words();
std::span<const std::string_view> safetensors_words();
std::span<const std::string_view> gguf_words();
std::span<const std::string_view> tokenizer_words();
std::span<const std::string_view> key_words();
std::span<const std::string_view> state_words();
std::span<const std::string_view> vocabulary_words();

}  // namespace runnel
