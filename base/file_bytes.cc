#include "base/file_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/text.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::generic_category().message(errno); }

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

Status open_for_reading(const std::string& path, std::ifstream& file) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return not_found("there is no file " + quote(path, 400) + ": check its name");
  }
  if (!fs::is_regular_file(status)) {
    return invalid_argument(quote(path, 400) + " is not a regular file: name one");
  }
  file.open(path, std::ios::binary);
  if (!file) return invalid_argument("cannot open " + quote(path, 400) + ": " + reason());
  return {};
}

Result<std::vector<uint8_t>> read_up_to(const std::string& path, int64_t count) {
  std::ifstream file;
  if (Status status = open_for_reading(path, file); !status.ok()) return status;
  constexpr int64_t kPiece = 1 << 20;
  std::vector<uint8_t> bytes;
  while (static_cast<int64_t>(bytes.size()) < count && file) {
    const size_t before = bytes.size();
    bytes.resize(std::min<int64_t>(count, before + kPiece));
    file.read(reinterpret_cast<char*>(bytes.data() + before),
              static_cast<std::streamsize>(bytes.size() - before));
    bytes.resize(before + file.gcount());
  }
  if (file.bad()) return invalid_argument("cannot read " + quote(path, 400) + ": " + reason());
  return bytes;
}

}  // namespace

Result<std::vector<uint8_t>> read_file(const std::string& path, int64_t at_most) {
  Result<std::vector<uint8_t>> bytes = read_up_to(path, at_most + 1);
  if (bytes.ok() && static_cast<int64_t>(bytes->size()) > at_most) {
    return invalid_argument(quote(path, 400) + " has more than " + std::to_string(at_most) +
                            " bytes, the most that are read here");
  }
  return bytes;
}

Result<std::vector<uint8_t>> read_head(const std::string& path, int64_t count) {
  return read_up_to(path, count);
}

Status check_writable(const std::string& path) {
  if (path.empty()) return invalid_argument("the name of the file to write is empty");
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return invalid_argument(quote(path, 400) + " is a directory: name a file in it");
  }
  const fs::path folder = folder_of(path);
  if (!fs::is_directory(folder, error)) {
    return invalid_argument("there is no directory " + quote(folder.string(), 400) +
                            " to write into: make it first");
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return invalid_argument("cannot write into " + quote(folder.string(), 400) + ": " + reason() +
                            "; name another place");
  }
  return {};
}

Status write_file(const std::string& path, std::span<const uint8_t> bytes) {
  if (Status status = check_writable(path); !status.ok()) return status;
  std::error_code error;
  const bool replaced = !fs::exists(path, error) || fs::is_regular_file(path, error);
  // A device or a pipe is written to, never replaced.
  const std::string part = !replaced ? path : path + ".part" + std::to_string(getpid());
  const auto failed = [&](const std::string& why) {
    std::error_code ignored;
    if (replaced) fs::remove(part, ignored);
    return invalid_argument("cannot write " + quote(path, 400) + ": " + why);
  };
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return failed(reason());
  }
  if (replaced) fs::rename(part, path, error);
  if (replaced && error) return failed(error.message());
  return {};
}

}  // namespace runnel
