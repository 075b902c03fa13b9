// Original file: proto/coxswain/v1/control.proto

import type { LinkState as _coxswain_v1_LinkState, LinkState__Output as _coxswain_v1_LinkState__Output } from '../../coxswain/v1/LinkState.ts';
import type { Long } from '@grpc/proto-loader';

export interface Ready {
  'epoch'?: (number | string | Long);
  'links'?: (_coxswain_v1_LinkState)[];
}

export interface Ready__Output {
  'epoch': (number);
  'links': (_coxswain_v1_LinkState__Output)[];
}
