// The names of models.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// 1 to kMaxNameLength characters of A-Z, a-z, 0-9, '.', '_' and '-'.
bool is_model_name(std::string_view name);

// A name for a model whose files give none: the last part of the directory's path, or of
// ".../models--ORG--NAME/snapshots/HASH", where Hugging Face's cache keeps it, NAME. Characters
// that a name may not have become '-'.
std::string name_of_directory(const std::string& directory);

}  // namespace runnel
