// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Step {
  'epoch'?: (number | string | Long);
  'step'?: (number | string | Long);
  'record'?: (Buffer | Uint8Array | string);
  'more'?: (boolean);
}

export interface Step__Output {
  'epoch': (number);
  'step': (number);
  'record': (Buffer);
  'more': (boolean);
}
