// Reads tensors of a bundle into a backend.
#include "models/weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"

namespace runnel {
namespace {

// A layer whose weight is stored as [in, out] equals the layer of the same numbers that are stored
// as [out, in].
TEST(WeightReader, TransposesNumbersOfEveryPlainType) {
  Result<std::unique_ptr<Backend>> backend =
      make_cpu_backend({.isa = Isa::kPortable, .threads = 1});
  ASSERT_TRUE(backend.ok());
  for (const StoredType type : {StoredType::kF32, StoredType::kF16, StoredType::kBF16}) {
    for (const auto& [out, in] :
         {std::array{1, 1}, std::array{3, 40}, std::array{16, 32}, std::array{35, 33}}) {
      SCOPED_TRACE(std::to_string(out) + " x " + std::to_string(in));
      const auto size = static_cast<size_t>(bytes_of(type));
      std::vector<std::byte> rows(size * out * in);
      std::vector<std::byte> columns(rows.size());
      for (int row = 0; row < out; ++row) {
        for (int col = 0; col < in; ++col) {
          // The upper bits of an element. The number is finite in every type.
          const auto bits = static_cast<uint16_t>(0x3c00 + row * in + col);
          const size_t upper = size - sizeof(bits);
          std::memcpy(rows.data() + (row * in + col) * size + upper, &bits, sizeof(bits));
          std::memcpy(columns.data() + (col * out + row) * size + upper, &bits, sizeof(bits));
        }
      }
      Bundle bundle;
      bundle.tensors["rows"] = {type, {out, in}, rows};
      bundle.tensors["columns"] = {type, {in, out}, columns};
      bundle.memory = std::make_shared<OwnedTensors>();
      const WeightReader reader(bundle, **backend);
      const Weight wanted = reader.pack(LinearTensors{.weight = "rows"}, Precision::kFp32);
      const Weight found =
          reader.pack(LinearTensors{.weight = "columns", .transposed = true}, Precision::kFp32);
      EXPECT_EQ(found.in, in);
      EXPECT_EQ(found.out, out);
      ASSERT_EQ(found.panels.bytes(), wanted.panels.bytes());
      EXPECT_EQ(std::memcmp(found.panels.data(), wanted.panels.data(), wanted.panels.bytes()), 0);
    }
  }
}

}  // namespace
}  // namespace runnel
