// One item out of a file of images: "digit.png", "t10k-images-idx3-ubyte.gz#7".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/idx_file.h"
#include "models/spec.h"

namespace runnel {

// A file, and which of its items: what follows the last '#', unless a file is called so.
// INVALID_ARGUMENT for an index that is not a number.
struct ItemName {
  std::string path;
  int64_t index = 0;
  bool has_index = false;
};
Result<ItemName> parse_item_name(const std::string& name);

// OK when the file's items are images of `shape`: idx has {height, width} for one channel, {height,
// width, channels} for any. INVALID_ARGUMENT naming the file, expected and found.
Status check_idx_shape(const IdxFile& idx, const ImageShape& shape, const std::string& file);

// The bytes of the image called `name`, in a PNG or an idx file, in the model's shape.
Result<std::vector<uint8_t>> load_image(const std::string& name, const ImageShape& shape);

// The first `rows` rows of the image called `name`, as the values of a prompt. INVALID_ARGUMENT
// unless 1 <= rows < shape.height.
Result<std::vector<int32_t>> image_prompt(const std::string& name, const ImageShape& shape,
                                          int64_t rows);

}  // namespace runnel
