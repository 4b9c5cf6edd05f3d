// Checks properties of parsing the config.json and the weight index of published models.
// properties.h does the same for the files of bundles.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads a config.json with the tensors of each family. If it is refused, the status is
// INVALID_ARGUMENT with one short printable line that starts with the file's name. If it is
// accepted, a bundle can express it. True if it was accepted for any family.
bool check_published(std::string_view text);

// Reads model.safetensors.index.json. It is refused in the same way. If it is accepted, each of its
// files is in the model's directory. True if it was accepted.
bool check_weight_index(std::string_view text);

// Small well-formed inputs to start from.
std::vector<std::string> published_seeds();
std::vector<std::string> weight_index_seeds();

// Words for the fuzzer to insert.
std::span<const std::string_view> published_words();
std::span<const std::string_view> weight_index_words();

}  // namespace runnel
