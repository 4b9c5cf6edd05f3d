#include "cli/quantize.h"

#include <memory>

#include "base/text.h"
#include "models/bundle/quantize.h"

namespace runnel {

int run_quantize(const QuantizeOptions& options, Console& console) {
  const Result<Bundle> bundle = load_bundle(options.bundle);
  if (!bundle.ok()) return fail(console, kExitUsage, bundle.status().message());
  const StoredType type = options.type == "q4_0" ? StoredType::kQ4_0 : StoredType::kQ8_0;
  const Result<Quantized> done = quantize(*bundle, type, options.out);
  if (!done.ok()) return fail(console, kExitUsage, done.status().message());
  console.out << done->matrices << " matrices with " << with_commas(done->elements)
              << " numbers are in blocks of " << format_of(type).name << ", " << done->others
              << " tensors keep their types; " << byte_count(done->bytes_before) << " became "
              << byte_count(done->bytes_after) << '\n';
  return delivered(console, kExitOk);
}

void add_quantize(const Command& root) {
  const auto options = std::make_shared<QuantizeOptions>();
  const Command command = root.command(
      "quantize",
      "Write a copy of a model with its large matrices in 4 or 8 bits a number, for a CPU");
  command.flag("bundle", options->bundle, "Directory of a bundle or a published model").required();
  command
      .flag("--type", options->type,
            "q4_0: 4.5 bits a number; q8_0: 8.5 bits (docs/internals/numerics.md has the loss)")
      .one_of({"q4_0", "q8_0"})
      .required();
  command.flag("--out,-o", options->out, "Directory to create").required();
  command.runs([options](Console& console) { return run_quantize(*options, console); });
}

}  // namespace runnel
