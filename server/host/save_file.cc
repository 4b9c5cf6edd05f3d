#include "server/host/save_file.h"

#include <utility>

#include "models/state/file.h"

namespace runnel {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr int64_t kPartBytes = 1024;  // of a part's description: as it is, and as text

}  // namespace

int64_t bytes_to_save(const Engine& engine) {
  return engine.state_bytes() + 3 * int64_t{kPieceBytes} +
         kPartBytes * std::ssize(engine.layout().parts);
}

Result<int64_t> save_file(const ServerContext& context, const ServedModel& model,
                          const std::string& owner, StateImage image, const SaveSnapshot& save) {
  const SealKey* const seal = context.seal_keys ? &context.seal_keys->front() : nullptr;
  SealTerms terms;
  if (seal != nullptr) {
    terms.issued = context.clock.unix_time();
    if (!owner.empty()) terms.owner = owner_mark(*seal, owner);
  }
  const int64_t position = image.position;
  StateWriter writer(model.state_digest, model.engine->layout(), std::move(image), seal, terms);
  return save({position, [&] { return writer.next(kPieceBytes); }});
}

}  // namespace runnel
