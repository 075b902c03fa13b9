// The engine's arguments and answers as JavaScript values, field for field as in
// src/engine/engine.ts.
#pragma once
#include <napi.h>

#include <span>
#include <vector>

#include "comm/comm.h"
#include "engine/engine.h"

namespace coxswain::addon {

engine::EngineOptions to_engine_options(const Napi::Object& object);
// Of savePages and loadPages: what is read from or written to which pages of which file.
struct PageRequest {
  uint64_t epoch;
  engine::PageFile file;
  engine::PageBox box;  // loads only
  std::vector<uint32_t> blocks;
};
PageRequest to_save_request(const Napi::Object& object);
PageRequest to_load_request(const Napi::Object& object);
Napi::Value saved_pages_of(Napi::Env env, const engine::PageFile& file);

comm::EpochSpec to_epoch_spec(const Napi::Object& object);
// Arguments of calls; another type is a TypeError that says which argument. The bytes stay
// JavaScript's.
std::span<const std::byte> bytes_argument(const Napi::CallbackInfo& info, size_t index);
int peer_argument(const Napi::CallbackInfo& info);

Napi::Value facts_of(Napi::Env env, const engine::EngineInfo& facts, uint16_t data_port);
Napi::Value links_of(Napi::Env env, const std::vector<comm::LinkReport>& reports);
Napi::Value progress_of(Napi::Env env, const engine::Progress& now);
Napi::Value counters_of(Napi::Env env, const comm::DataPlane::Counters& now);

}  // namespace coxswain::addon
