#include "server/calls/session_changes.h"

#include <utility>

#include "base/fields.h"
#include "server/host/kept_sessions.h"

namespace runnel {
namespace {

// Sessions that the engine has just made: saves them one after another, or deletes all of them.
class NewSessions : public std::enable_shared_from_this<NewSessions> {
 public:
  NewSessions(ServerContext& state, ModelHold model, Caller caller, bool empty,
              std::vector<SessionInfo> made, MoveDone done)
      : kept_(*state.kept),
        model_(std::move(model)),
        caller_(std::move(caller)),
        empty_(empty),
        made_(std::move(made)),
        done_(std::move(done)) {}

  void save_next() {
    if (next_ == made_.size()) return done_(made_);
    auto session = kept_.adopt(model_, caller_, made_[next_].key.id, empty_);
    if (!session.ok()) {
      model_->engine->delete_session(made_[next_].key, [](const Status&) {});
      return undo(session.status());
    }
    (*session)->save([self = shared_from_this()](const Status& saved) {
      if (!saved.ok()) return self->undo(saved);
      ++self->next_;
      self->save_next();
    });
  }

 private:
  // The session that could not be saved has been deleted already.
  void undo(const Status& status) {
    for (size_t i = 0; i < next_; ++i) {
      kept_.remove(model_, caller_, made_[i].key.id, [](const Status&) {});
    }
    for (size_t i = next_ + 1; i < made_.size(); ++i) {
      model_->engine->delete_session(made_[i].key, [](const Status&) {});
    }
    done_(status);
  }

  KeptSessions& kept_;
  const ModelHold model_;
  const Caller caller_;
  const bool empty_;
  const std::vector<SessionInfo> made_;
  const MoveDone done_;
  size_t next_ = 0;  // the next one to be saved
};

void save_new(ServerContext& state, const ModelHold& model, const Caller& caller, bool empty,
              std::vector<SessionInfo> made, const MoveDone& done) {
  std::make_shared<NewSessions>(state, model, caller, empty, std::move(made), done)->save_next();
}

// Loads the session if the engine does not have it. NOT_FOUND.
void fetch_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                   const std::string& id, const std::function<void(const Status&)>& done) {
  state.kept->open(
      model, caller, {.id = id, .field = fields::kId},
      [done](const Result<std::shared_ptr<StoredSession>>& opened) { done(opened.status()); });
}

// Makes a session. If the engine has one of that name, another server may have deleted it: looks in
// the store, and tries once more.
template <typename Outcome>
void make_twice(ServerContext& state, const ModelHold& model, const Caller& caller,
                const std::string& id,
                const std::function<void(const std::function<void(Result<Outcome>)>&)>& make,
                const std::function<void(Result<Outcome>)>& done) {
  make([&state, model, caller, id, make, done](const Result<Outcome>& made) {
    if (made.status().code() != Code::kAlreadyExists) return done(made);
    fetch_session(state, model, caller, id, [make, done](const Status& fetched) {
      if (!fetched.ok() && fetched.code() != Code::kNotFound) return done(fetched);
      make(done);
    });
  });
}

}  // namespace

void create_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const SessionDone& done) {
  if (state.kept == nullptr) return model->engine->create_session(caller, id, done);
  make_twice<SessionInfo>(
      state, model, caller, id,
      [model, caller, id](const SessionDone& made) {
        model->engine->create_session(caller, id, made);
      },
      [&state, model, caller, done](const Result<SessionInfo>& made) {
        if (!made.ok()) return done(made);
        save_new(state, model, caller, true, {*made},
                 [done](const Result<std::vector<SessionInfo>>& saved) {
                   done(saved.ok() ? Result<SessionInfo>(saved->front()) : saved.status());
                 });
      });
}

void get_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                 const std::string& id, const SessionDone& done) {
  if (state.kept == nullptr) return model->engine->get_session({caller.name, id}, done);
  state.kept->find(model, caller, id, done);
}

void list_sessions(ServerContext& state, const ModelHold& model, const Caller& caller,
                   const std::string& after, int count,
                   const std::function<void(Result<SessionPage>)>& done) {
  if (state.kept == nullptr) {
    return model->engine->list_sessions(caller.name, after, count, done);
  }
  state.kept->list(model, caller, after, count, done);
}

void delete_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::function<void(Status)>& done) {
  if (state.kept == nullptr) return model->engine->delete_session({caller.name, id}, done);
  state.kept->remove(model, caller, id, done);
}

void fork_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                  const std::string& parent, std::vector<std::string> children,
                  const MoveDone& done) {
  if (state.kept == nullptr) {
    return model->engine->fork_session(caller, parent, std::move(children), done);
  }
  fetch_session(state, model, caller, parent,
                [&state, model, caller, parent, children, done](const Status& fetched) {
                  if (!fetched.ok()) return done(fetched);
                  model->engine->fork_session(
                      caller, parent, children,
                      [&state, model, caller, done](const Result<std::vector<SessionInfo>>& made) {
                        if (!made.ok()) return done(unless_given_up(made.status()));
                        save_new(state, model, caller, false, *made, done);
                      });
                });
}

void export_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::shared_ptr<StateImage>& image,
                    const MoveDone& done) {
  const SessionKey key = {caller.name, id};
  if (state.kept == nullptr) return model->engine->export_session(key, image, done);
  fetch_session(state, model, caller, id, [model, key, image, done](const Status& fetched) {
    if (!fetched.ok()) return done(fetched);
    model->engine->export_session(key, image, [done](const auto& moved) {
      moved.ok() ? done(moved) : done(unless_given_up(moved.status()));
    });
  });
}

void import_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, const std::shared_ptr<StateImage>& image,
                    const MoveDone& done) {
  if (state.kept == nullptr) return model->engine->import_session(caller, id, image, done);
  make_twice<std::vector<SessionInfo>>(
      state, model, caller, id,
      [model, caller, id, image](const MoveDone& made) {
        model->engine->import_session(caller, id, image, made);
      },
      [&state, model, caller, done](const Result<std::vector<SessionInfo>>& made) {
        if (!made.ok()) return done(made.status());
        save_new(state, model, caller, false, *made, done);
      });
}

void rewind_session(ServerContext& state, const ModelHold& model, const Caller& caller,
                    const std::string& id, int64_t position, const MoveDone& done) {
  if (state.kept == nullptr) return model->engine->rewind_session(caller, id, position, done);
  // A rewind names its position, so it does not matter which call was cut off.
  SessionUse use = {.id = id,
                    .changes = true,
                    .request = "rewind " + std::to_string(position),
                    .after_cut_off = true};
  state.kept->open(
      model, caller, std::move(use),
      [model, caller, id, position, done](const Result<std::shared_ptr<StoredSession>>& opened) {
        if (!opened.ok()) return done(opened.status());
        const std::shared_ptr<StoredSession> session = *opened;
        model->engine->rewind_session(
            caller, id, position, [session, done](const Result<std::vector<SessionInfo>>& moved) {
              if (!moved.ok() || session == nullptr) return done(moved);
              session->save(
                  [moved, done](const Status& saved) { saved.ok() ? done(moved) : done(saved); });
            });
      });
}

}  // namespace runnel
