// The weights of a model. In a directory they are in model.safetensors, in model.gguf with the same
// names of tensors, or in several files with the index model.safetensors.index.json. Or they are in
// one GGUF file.
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

// Reports the progress of loading. Weights are read twice, to hash and to pack them, so `all` is
// twice their bytes. The loading thread calls it, and an exception that it throws ends the loading.
using LoadProgress = std::function<void(int64_t done, int64_t all)>;

// The name of each tensor's file, from an index. INVALID_ARGUMENT names `file`, what was expected
// and what was found. A file name that leads out of the directory is an error, too.
Result<std::map<std::string, std::string, std::less<>>> parse_weight_index(std::string_view json,
                                                                           const std::string& file);

class WeightFiles final : public TensorMemory {
 public:
  // Maps the files of a directory, or a GGUF file, read-only, checks their headers and starts
  // hashing them. Links are followed. NOT_FOUND if there are no weights or a file is missing,
  // RESOURCE_EXHAUSTED if no thread can be started for hashing; other errors are those of
  // WeightFile::open(). If there is an index, it must agree with the files on every tensor.
  static Result<std::shared_ptr<const WeightFiles>> open(const std::string& path,
                                                         LoadProgress progress = {});

  // The one file, or the index: the file to name in messages about the set of tensors.
  const std::string& path() const { return path_; }
  // The tensors of all files.
  const StoredTensors& tensors() const { return tensors_; }
  // WeightFile::metadata(), for a GGUF file.
  const Json& metadata() const { return files_[0].metadata(); }

  // Like WeightFile::find().
  Result<Tensor> find(std::string_view name, std::span<const int64_t> shape) const;

  Status check(const std::string& name) const override;
  void release(std::span<const std::byte> bytes) const override;

  // Waits until the files are hashed, so call it last. The result is that of
  // FileDigest::wait_for().
  Result<std::string> digest() const override;

 private:
  WeightFiles() = default;
  Status open_directory(const std::string& directory);
  Status open_one(const std::string& path);
  Status open_listed(const std::string& directory, const std::string& index);
  Status take(WeightFile file);
  void count(int64_t bytes) const;

  std::string path_;
  std::vector<WeightFile> files_;  // by name
  std::map<std::string, const size_t, std::less<>>
      place_;  // the index in files_ of each tensor's file
  StoredTensors tensors_;
  LoadProgress progress_;
  int64_t bytes_ = 0;                     // of all files
  mutable int64_t packed_ = 0;            // bytes that have been packed; all of them at the end
  mutable std::set<std::string> finite_;  // tensors that check() has found finite
  std::unique_ptr<FileDigest>
      digest_;  // declared last: its thread ends before the files are closed
};

}  // namespace runnel
