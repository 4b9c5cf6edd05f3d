#include "models/bundle/weight_files.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "models/bundle/gguf.h"

namespace runnel {
namespace {

using Index = std::map<std::string, std::string, std::less<>>;

constexpr const char* kOneFile = "/model.safetensors";
constexpr const char* kQuantized = "/model.gguf";
constexpr const char* kIndex = "/model.safetensors.index.json";
constexpr JsonLimits kIndexLimits{.bytes = kMaxConfigBytes, .values = 1 << 20, .depth = 8};
constexpr size_t kMaxFiles = 1024;
constexpr size_t kMaxFileName = 255;
constexpr std::chrono::milliseconds kBetweenCounts(50);  // while the digest is not known

// Whether the name is that of a file in the same directory.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileName && name.ends_with(".safetensors") &&
         name.find('/') == std::string_view::npos && name.find("..") == std::string_view::npos;
}

Status no_weights(const std::string& directory) {
  return not_found(directory + kOneFile + ": no such file, nor " + (kIndex + 1) +
                   "; weights in other files (.pth, pytorch_model.bin) become safetensors with "
                   "runnel-convert");
}

}  // namespace

Result<Index> parse_weight_index(std::string_view json, const std::string& file) {
  const Result<Json> tree = parse_json(json, file, kIndexLimits);
  if (!tree.ok()) return tree.status();
  const auto fault = [&](const std::string& what) { return invalid_argument(file + ": " + what); };
  if (!tree->is_object()) return fault("expected an object, found " + describe(*tree));
  const auto map = tree->find("weight_map");
  if (map == tree->end()) return fault("weight_map: expected an object, found no such key");
  if (!map->is_object() || map->empty()) {
    return fault("weight_map: expected an object with the file's name of each tensor, found " +
                 (map->is_object() ? "none" : describe(*map)));
  }
  Index index;
  std::set<std::string> names;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string() || !is_plain_name(name.get_ref<const std::string&>())) {
      return fault("weight_map: tensor " + quote(tensor) +
                   ": expected the name of a .safetensors file in the folder of the index, without "
                   "'/' and '..', found " +
                   describe(name));
    }
    index.emplace(tensor, name.get<std::string>());
    if (names.insert(name.get<std::string>()).second && names.size() > kMaxFiles) {
      return fault("weight_map: expected at most " + std::to_string(kMaxFiles) +
                   " files, found more");
    }
  }
  return index;
}

Result<std::shared_ptr<const WeightFiles>> WeightFiles::open(const std::string& path,
                                                             LoadProgress progress) {
  const std::shared_ptr<WeightFiles> files(new WeightFiles);
  files->progress_ = std::move(progress);
  Status status = is_gguf(path) ? files->open_one(path) : files->open_directory(path);
  if (!status.ok()) return status;
  try {
    files->digest_ = std::make_unique<FileDigest>(files->files_);
  } catch (const std::system_error& error) {
    return Status(Code::kResourceExhausted,
                  files->path_ + ": no thread can be started to hash it: " + error.what());
  }
  return std::shared_ptr<const WeightFiles>(files);
}

Status WeightFiles::open_directory(const std::string& directory) {
  Status status = open_one(directory + kOneFile);
  if (status.code() == Code::kNotFound) status = open_one(directory + kQuantized);
  if (status.code() != Code::kNotFound) return status;
  const Result<std::string> index = read_file(directory + kIndex, kMaxConfigBytes);
  if (index.status().code() == Code::kNotFound) return no_weights(directory);
  if (!index.ok()) return index.status();
  path_ = directory + kIndex;
  return open_listed(directory, *index);
}

Status WeightFiles::open_one(const std::string& path) {
  Result<WeightFile> file = WeightFile::open(path);
  if (!file.ok()) return file.status();
  path_ = path;
  return take(std::move(*file));
}

Status WeightFiles::open_listed(const std::string& directory, const std::string& text) {
  const Result<Index> index = parse_weight_index(text, path_);
  if (!index.ok()) return index.status();
  std::set<std::string> names;
  for (const auto& [tensor, name] : *index) names.insert(name);
  for (const std::string& name : names) {
    Result<WeightFile> file = WeightFile::open(directory + "/" + name);
    if (!file.ok()) {
      return {file.status().code(), file.status().message() + "; " + path_ + " names this file"};
    }
    if (Status s = take(std::move(*file)); !s.ok()) return s;
  }
  for (const auto& [tensor, name] : *index) {
    const auto found = place_.find(tensor);
    if (found != place_.end() && files_[found->second].path() == directory + "/" + name) continue;
    return invalid_argument(
        path_ + ": tensor " + quote(tensor) + ": expected in " + quote(name) + ", found " +
        (found == place_.end() ? "in no file" : "in " + quote(files_[found->second].path())));
  }
  for (const auto& [tensor, place] : place_) {
    if (index->contains(tensor)) continue;
    return invalid_argument(files_[place].path() + ": tensor " + quote(tensor) +
                            ": expected a line of " + path_ + " to name it, found none");
  }
  return {};
}

// Each tensor may be in only one of the files.
Status WeightFiles::take(WeightFile file) {
  for (const auto& [name, tensor] : file.tensors()) {
    const auto [at, is_new] = place_.emplace(name, files_.size());
    if (!is_new) {
      return invalid_argument(file.path() + ": tensor " + quote(name) +
                              ": expected in one file, found in " +
                              quote(files_[at->second].path()) + " as well");
    }
    tensors_.emplace(name, tensor);
    bytes_ += tensor.end - tensor.begin;
  }
  files_.push_back(std::move(file));
  return {};
}

Result<Tensor> WeightFiles::find(std::string_view name, std::span<const int64_t> shape) const {
  const auto found = place_.find(name);
  // If a tensor is in no file, any file reports that.
  return files_[found == place_.end() ? 0 : found->second].find(name, shape);
}

Status WeightFiles::check(const std::string& name) const {
  const auto found = place_.find(name);
  if (found == place_.end() || finite_.contains(name)) return {};
  const WeightFile& file = files_[found->second];
  const Result<Tensor> tensor = file.find(name, tensors_.find(name)->second.shape);
  Status status = check_finite(*tensor, name, file.path());
  if (status.ok()) finite_.insert(name);
  return status;
}

void WeightFiles::release(std::span<const std::byte> bytes) const {
  for (const WeightFile& file : files_) file.release(bytes);
  count(std::ssize(bytes));
}

Result<std::string> WeightFiles::digest() const {
  const Result<std::string>* digest = nullptr;
  do {
    count(0);
    digest = digest_->wait_for(kBetweenCounts);
  } while (digest == nullptr);
  if (digest->ok()) count(bytes_);
  return *digest;
}

// Bytes that nobody reads (headers, unused tensors) make no visible difference.
void WeightFiles::count(int64_t bytes) const {
  packed_ = std::min(packed_ + bytes, bytes_);
  if (progress_) progress_(packed_ + std::min(digest_->done(), bytes_), 2 * bytes_);
}

}  // namespace runnel
