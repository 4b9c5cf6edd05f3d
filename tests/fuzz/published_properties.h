// What must hold for every config.json of a published model and for every index of weight files,
// as properties.h has it for a bundle's own files.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace runnel {

// Reads a config.json beside the tensors of each family. Refused: INVALID_ARGUMENT with one short
// printable line that starts with the file's name. Accepted: a bundle can say the same. True when
// it was accepted beside any of them.
bool check_published(std::string_view text);

// Reads model.safetensors.index.json. Refused: as above. Accepted: every file is one of the
// directory's own. True when it was accepted.
bool check_weight_index(std::string_view text);

// Small well-formed inputs to start from.
std::vector<std::string> published_seeds();
std::vector<std::string> weight_index_seeds();

// Words that are worth inserting.
std::span<const std::string_view> published_words();
std::span<const std::string_view> weight_index_words();

}  // namespace runnel
