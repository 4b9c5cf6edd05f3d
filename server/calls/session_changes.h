// The engine's functions about sessions, for a server that may keep sessions in a store. Without a
// store, each does the same as the function of Engine with its name. With a store, a session is
// loaded before it is used, and `done` is called after the change has been saved. `done` may run on
// the scheduler's thread, and must not block.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/host/server_context.h"

namespace runnel {

using SessionDone = std::function<void(Result<SessionInfo>)>;
using ModelHold = std::shared_ptr<const ServedModel>;

// As Engine::create_session().
void create_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const SessionDone& done);
// As Engine::get_session().
void get_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                 const std::string& id, const SessionDone& done);
// As Engine::list_sessions().
void list_sessions(ServerContext& state, const ModelHold& model, const Caller& caller,
                   const std::string& after, int count,
                   const std::function<void(Result<SessionPage>)>& done);
// As Engine::delete_session().
void delete_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::function<void(Status)>& done);
// As Engine::fork_session().
void fork_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                  const std::string& parent, std::vector<std::string> children,
                  const MoveDone& done);
// As Engine::export_session().
void export_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::shared_ptr<StateImage>& image,
                    const MoveDone& done);
// As Engine::import_session().
void import_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::shared_ptr<StateImage>& image,
                    const MoveDone& done);
// As Engine::rewind_session().
void rewind_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, int64_t position, const MoveDone& done);

}  // namespace runnel
