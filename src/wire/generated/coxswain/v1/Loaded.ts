// Original file: proto/coxswain/v1/control.proto

import type { Long } from '@grpc/proto-loader';

export interface Loaded {
  'planHash'?: (string);
  'numericsId'?: (string);
  'isa'?: (string);
  'weightBytes'?: (number | string | Long);
  'kvBytes'?: (number | string | Long);
  'residentBytes'?: (number | string | Long);
  'vocab'?: (number);
  'context'?: (number);
  'loadMs'?: (number | string);
  'dataPort'?: (number);
  'threads'?: (number);
  'framesPort'?: (number);
}

export interface Loaded__Output {
  'planHash': (string);
  'numericsId': (string);
  'isa': (string);
  'weightBytes': (number);
  'kvBytes': (number);
  'residentBytes': (number);
  'vocab': (number);
  'context': (number);
  'loadMs': (number);
  'dataPort': (number);
  'threads': (number);
  'framesPort': (number);
}
