#include "base/png.h"

#include <png.h>

#include <string>

namespace runnel {
namespace {

png_image header_of(const PngShape& shape) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.height = static_cast<png_uint_32>(shape.height);
  image.width = static_cast<png_uint_32>(shape.width);
  image.format = shape.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  return image;
}

}  // namespace

int64_t png_bytes(const PngShape& shape) {
  const png_image image = header_of(shape);
  return static_cast<int64_t>(PNG_IMAGE_PNG_SIZE_MAX(image));
}

Result<std::vector<uint8_t>> encode_png(std::span<const uint8_t> pixels, const PngShape& shape) {
  png_image image = header_of(shape);
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<uint8_t> bytes(size);
  const int written =
      png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr);
  const std::string message = image.message;
  png_image_free(&image);
  if (written == 0) {
    return Status(Code::kResourceExhausted, "the picture could not be written as PNG: " + message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace runnel
