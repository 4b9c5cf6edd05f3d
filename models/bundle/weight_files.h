// The weights of a directory: model.safetensors, or model.gguf with the same names, or several
// files of which model.safetensors.index.json says which tensor is in which.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "models/bundle/weight_file.h"

namespace runnel {

// Told how far loading is: weights are gone through three times, to check, to hash and to pack
// them. `all` is three times their bytes. What it throws ends the loading.
using LoadProgress = std::function<void(int64_t done, int64_t all)>;

// The file's name of each tensor, as an index gives it. INVALID_ARGUMENT names `file`, what was
// expected and what was found: also for names of files that lead out of the directory.
Result<std::map<std::string, std::string, std::less<>>> parse_weight_index(std::string_view json,
                                                                           const std::string& file);

class WeightFiles final : public TensorMemory {
 public:
  // Maps the files read-only and checks their headers. Links are followed. NOT_FOUND when there
  // are no weights or one of the files is missing; else as WeightFile::open(). Where there is
  // an index, it and the files must agree on every tensor.
  static Result<std::shared_ptr<const WeightFiles>> open(const std::string& directory,
                                                         LoadProgress progress = {});

  // The one file, or the index: whom a message about the set of tensors names.
  const std::string& path() const { return path_; }
  // Of all files.
  const StoredTensors& tensors() const { return tensors_; }

  // As WeightFile::read().
  Result<Tensor> read(std::string_view name, std::span<const int64_t> shape) const;
  void release(std::span<const std::byte> bytes) const override;

  // Of one file its SHA-256, in hex; of several what `sha256sum *.safetensors | sha256sum` prints.
  std::string digest() const;

 private:
  WeightFiles() = default;
  Status open_one(const std::string& path);
  Status open_listed(const std::string& directory, const std::string& index);
  Status take(WeightFile file);
  void count(int64_t bytes) const;

  std::string path_;
  std::vector<WeightFile> files_;                           // by name
  std::map<std::string, const size_t, std::less<>> place_;  // in files_, of each tensor
  StoredTensors tensors_;
  LoadProgress progress_;
  int64_t bytes_ = 0;         // of all files
  mutable int64_t done_ = 0;  // bytes gone through
};

}  // namespace runnel
