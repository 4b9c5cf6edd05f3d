#include "server/host/session_file.h"

#include <cstddef>
#include <utility>

namespace runnel {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr int64_t kPartBytes = 1024;  // of a part's description, as it is and as text

}  // namespace

int64_t bytes_to_save(const Engine& engine) {
  return engine.state_bytes() + 3 * int64_t{kPieceBytes} +
         kPartBytes * std::ssize(engine.layout().parts);
}

Result<int64_t> save_file(const ServerContext& context, const ServedModel& model,
                          const std::string& owner, StateImage image,
                          const std::function<Result<int64_t>(const Snapshot&)>& save) {
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

Result<std::shared_ptr<StateImage>> load_file(const ServerContext& context,
                                              const ServedModel& model, const std::string& owner,
                                              Store& store, const std::string& key,
                                              const Record& record) {
  const SealKeys* const keys = context.seal_keys ? &*context.seal_keys : nullptr;
  const StateTarget target = {.spec = model.engine->spec(),
                              .layout = model.engine->layout(),
                              .model = model.state_digest,
                              .keys = keys,
                              .caller = owner,
                              .now = context.clock.unix_time()};
  StateReader reader(
      [&target](const StateHeader& header) {
        const Status status = check_state(header, target);
        return status.ok() ? Result<StateLayout>(target.layout) : Result<StateLayout>(status);
      },
      keys);
  const Status loaded = store.load(key, record, [&](auto bytes) { return reader.add(bytes); });
  if (!loaded.ok()) return loaded;
  Result<StateImage> image = reader.finish();
  if (!image.ok()) return image.status();
  if (image->position != record.state_at) {
    return Status(Code::kDataLoss, "it is of another position");
  }
  return std::make_shared<StateImage>(std::move(*image));
}

}  // namespace runnel
