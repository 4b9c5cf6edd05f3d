#include "models/bundle/name.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/limits.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCached = "models--";

bool is_name_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

bool is_model_name(std::string_view name) {
  return !name.empty() && std::ssize(name) <= kMaxNameLength &&
         std::ranges::all_of(name, is_name_character);
}

std::string name_of_directory(const std::string& directory) {
  std::error_code ignored;
  fs::path path = fs::absolute(directory, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "zoo/" is "zoo"
  std::string name = path.filename().string();
  const std::string cached = path.parent_path().parent_path().filename().string();
  if (path.parent_path().filename() == "snapshots" && cached.starts_with(kCached)) {
    name = cached.substr(cached.rfind("--") + 2);
  }
  name.resize(std::min<size_t>(name.size(), kMaxNameLength));
  std::ranges::replace_if(name, std::not_fn(is_name_character), '-');
  return name.empty() ? "model" : name;
}

}  // namespace runnel
