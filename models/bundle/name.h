// The names of models.
#pragma once

#include <string>
#include <string_view>

namespace runnel {

// 1 to kMaxNameLength characters of A-Z, a-z, 0-9, '.', '_' and '-'.
bool is_model_name(std::string_view name);

// A name for a model whose files do not give one: the last part of the directory's path. In Hugging
// Face's cache the path is ".../models--ORG--NAME/snapshots/HASH", and the name is NAME. A
// character that a name may not have becomes '-'.
std::string name_of_directory(const std::string& directory);

}  // namespace runnel
