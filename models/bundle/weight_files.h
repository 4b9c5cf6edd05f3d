// The weights of a model: those of a directory in model.safetensors, in model.gguf with the same
// names, or in several files, with an index of their tensors in model.safetensors.index.json; or
// those of one GGUF file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "models/bundle/file_digest.h"
#include "models/bundle/weight_file.h"

namespace runnel {

// Told how far loading is: weights are read twice, to hash and to pack them, and `all` is twice
// their bytes. The thread that loads calls it, and an exception that it throws ends the loading.
using LoadProgress = std::function<void(int64_t done, int64_t all)>;

// The file's name of each tensor, as an index gives it. INVALID_ARGUMENT names `file`, what was
// expected and what was found: also for names of files that lead out of the directory.
Result<std::map<std::string, std::string, std::less<>>> parse_weight_index(std::string_view json,
                                                                           const std::string& file);

class WeightFiles final : public TensorMemory {
 public:
  // Maps the files of a directory, or a GGUF file, read-only, checks their headers and begins to
  // hash them. Links are followed. NOT_FOUND when there are no weights or one of the files is
  // missing, RESOURCE_EXHAUSTED when there is no thread to hash them; else as WeightFile::open().
  // Where there is an index, it and the files must agree on every tensor.
  static Result<std::shared_ptr<const WeightFiles>> open(const std::string& path,
                                                         LoadProgress progress = {});

  // The one file, or the index: whom a message about the set of tensors names.
  const std::string& path() const { return path_; }
  // Of all files.
  const StoredTensors& tensors() const { return tensors_; }
  // WeightFile::metadata() of a GGUF file.
  const Json& metadata() const { return files_[0].metadata(); }

  // As WeightFile::find().
  Result<Tensor> find(std::string_view name, std::span<const int64_t> shape) const;

  Status check(const std::string& name) const override;
  void release(std::span<const std::byte> bytes) const override;

  // Waits until the files are hashed: ask for it last. As FileDigest::wait_for().
  Result<std::string> digest() const override;

 private:
  WeightFiles() = default;
  Status open_directory(const std::string& directory);
  Status open_one(const std::string& path);
  Status open_listed(const std::string& directory, const std::string& index);
  Status take(WeightFile file);
  void count(int64_t bytes) const;

  std::string path_;
  std::vector<WeightFile> files_;                           // by name
  std::map<std::string, const size_t, std::less<>> place_;  // in files_, of each tensor
  StoredTensors tensors_;
  LoadProgress progress_;
  int64_t bytes_ = 0;                     // of all files
  mutable int64_t packed_ = 0;            // bytes, and at the end all of them
  mutable std::set<std::string> finite_;  // tensors that check() has looked through
  std::unique_ptr<FileDigest> digest_;    // it ends before the files do
};

}  // namespace runnel
