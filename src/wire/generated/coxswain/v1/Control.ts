// Original file: proto/coxswain/v1/control.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { DataFrame as _coxswain_v1_DataFrame, DataFrame__Output as _coxswain_v1_DataFrame__Output } from '../../coxswain/v1/DataFrame.ts';
import type { FromRank as _coxswain_v1_FromRank, FromRank__Output as _coxswain_v1_FromRank__Output } from '../../coxswain/v1/FromRank.ts';
import type { ToRank as _coxswain_v1_ToRank, ToRank__Output as _coxswain_v1_ToRank__Output } from '../../coxswain/v1/ToRank.ts';

export interface ControlDefinition {
  Attach: MethodDefinition<_coxswain_v1_FromRank, _coxswain_v1_ToRank, _coxswain_v1_FromRank__Output, _coxswain_v1_ToRank__Output>
  Frames: MethodDefinition<_coxswain_v1_DataFrame, _coxswain_v1_DataFrame, _coxswain_v1_DataFrame__Output, _coxswain_v1_DataFrame__Output>
}
