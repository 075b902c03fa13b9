// Original file: proto/coxswain/v1/control.proto

import type { Challenge as _coxswain_v1_Challenge, Challenge__Output as _coxswain_v1_Challenge__Output } from '../../coxswain/v1/Challenge.ts';
import type { Proof as _coxswain_v1_Proof, Proof__Output as _coxswain_v1_Proof__Output } from '../../coxswain/v1/Proof.ts';
import type { Refused as _coxswain_v1_Refused, Refused__Output as _coxswain_v1_Refused__Output } from '../../coxswain/v1/Refused.ts';
import type { Assign as _coxswain_v1_Assign, Assign__Output as _coxswain_v1_Assign__Output } from '../../coxswain/v1/Assign.ts';
import type { Open as _coxswain_v1_Open, Open__Output as _coxswain_v1_Open__Output } from '../../coxswain/v1/Open.ts';
import type { Step as _coxswain_v1_Step, Step__Output as _coxswain_v1_Step__Output } from '../../coxswain/v1/Step.ts';
import type { Fence as _coxswain_v1_Fence, Fence__Output as _coxswain_v1_Fence__Output } from '../../coxswain/v1/Fence.ts';
import type { Shutdown as _coxswain_v1_Shutdown, Shutdown__Output as _coxswain_v1_Shutdown__Output } from '../../coxswain/v1/Shutdown.ts';
import type { Resume as _coxswain_v1_Resume, Resume__Output as _coxswain_v1_Resume__Output } from '../../coxswain/v1/Resume.ts';
import type { Long } from '@grpc/proto-loader';

export interface CoordinatorBody {
  'challenge'?: (_coxswain_v1_Challenge | null);
  'proof'?: (_coxswain_v1_Proof | null);
  'refused'?: (_coxswain_v1_Refused | null);
  'assign'?: (_coxswain_v1_Assign | null);
  'open'?: (_coxswain_v1_Open | null);
  'step'?: (_coxswain_v1_Step | null);
  'fence'?: (_coxswain_v1_Fence | null);
  'shutdown'?: (_coxswain_v1_Shutdown | null);
  'resume'?: (_coxswain_v1_Resume | null);
  'number'?: (number | string | Long);
  'acked'?: (number | string | Long);
  'kind'?: "challenge"|"proof"|"refused"|"assign"|"open"|"step"|"fence"|"shutdown"|"resume";
}

export interface CoordinatorBody__Output {
  'challenge'?: (_coxswain_v1_Challenge__Output | null);
  'proof'?: (_coxswain_v1_Proof__Output | null);
  'refused'?: (_coxswain_v1_Refused__Output | null);
  'assign'?: (_coxswain_v1_Assign__Output | null);
  'open'?: (_coxswain_v1_Open__Output | null);
  'step'?: (_coxswain_v1_Step__Output | null);
  'fence'?: (_coxswain_v1_Fence__Output | null);
  'shutdown'?: (_coxswain_v1_Shutdown__Output | null);
  'resume'?: (_coxswain_v1_Resume__Output | null);
  'number': (number);
  'acked': (number);
  'kind'?: "challenge"|"proof"|"refused"|"assign"|"open"|"step"|"fence"|"shutdown"|"resume";
}
