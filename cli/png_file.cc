#include "cli/png_file.h"

#include <png.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/png.h"
#include "base/text.h"

namespace runnel {
namespace {

struct FreeImage {
  void operator()(png_image* image) const { png_image_free(image); }
};

std::string size_text(int64_t height, int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

Status check_header(const png_image& image, const ImageShape& shape, const std::string& file) {
  const int64_t height = image.height;
  const int64_t width = image.width;
  if (height != shape.height || width != shape.width) {
    return invalid_argument(file + " is " + size_text(height, width) +
                            " pixels (height x width); " + "the model takes " +
                            size_text(shape.height, shape.width) +
                            ": scale or crop it to that size");
  }
  if (height > kMaxImageSide || width > kMaxImageSide || height * width > kMaxImagePixels) {
    return invalid_argument(file +
                            " is larger than images can be here: " + size_text(height, width));
  }
  if ((image.format & PNG_FORMAT_FLAG_LINEAR) != 0) {
    return invalid_argument(file + " has 16 bits a channel; expected 8: save it with 8");
  }
  if ((image.format & PNG_FORMAT_FLAG_ALPHA) != 0) {
    return invalid_argument(file + " is transparent in places; expected grey or red green blue: " +
                            "save it without an alpha channel");
  }
  return {};
}

// Keeps one of three channels, if all three are equal.
Result<Picture> to_grey(const Picture& colour, const std::string& file) {
  Picture grey;
  grey.shape = {colour.shape.height, colour.shape.width, 1};
  grey.bytes.resize(grey.shape.bytes());
  for (size_t i = 0; i < grey.bytes.size(); ++i) {
    const uint8_t* pixel = colour.bytes.data() + 3 * i;
    if (pixel[0] != pixel[1] || pixel[0] != pixel[2]) {
      return invalid_argument(file + " is in colour (row " + std::to_string(i / grey.shape.width) +
                              ", column " + std::to_string(i % grey.shape.width) +
                              "); the model takes grey images: convert it to grey");
    }
    grey.bytes[i] = pixel[0];
  }
  return grey;
}

}  // namespace

bool looks_like_png(std::span<const uint8_t> bytes) {
  constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  return bytes.size() >= kSignature.size() &&
         std::memcmp(bytes.data(), kSignature.data(), kSignature.size()) == 0;
}

Result<Picture> decode_png(std::span<const uint8_t> bytes, const ImageShape& shape,
                           const std::string& file) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, FreeImage> owner(&image);
  const auto damaged = [&] {
    return invalid_argument(file +
                            " is not a PNG file that can be read: " + printable(image.message));
  };
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) return damaged();
  if (Status status = check_header(image, shape, file); !status.ok()) return status;
  image.format = PNG_FORMAT_RGB;
  Picture picture;
  picture.shape = {shape.height, shape.width, 3};
  picture.bytes.resize(picture.shape.bytes());
  if (png_image_finish_read(&image, nullptr, picture.bytes.data(), 0, nullptr) == 0) {
    return damaged();
  }
  if (shape.channels == 3) return picture;
  return to_grey(picture, file);
}

Result<std::vector<uint8_t>> encode_png(const Picture& picture) {
  const ImageShape& shape = picture.shape;
  if (shape.height < 1 || shape.width < 1 || shape.height > kMaxImageSide ||
      shape.width > kMaxImageSide || int64_t{shape.height} * shape.width > kMaxImagePixels) {
    return invalid_argument("a picture of " + size_text(shape.height, shape.width) +
                            " pixels does not fit a PNG file here");
  }
  return encode_png(picture.bytes, {shape.height, shape.width, shape.channels});
}

}  // namespace runnel
