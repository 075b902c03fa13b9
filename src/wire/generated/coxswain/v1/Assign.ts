// Original file: proto/coxswain/v1/control.proto

import type { Topology as _coxswain_v1_Topology, Topology__Output as _coxswain_v1_Topology__Output } from '../../coxswain/v1/Topology.ts';

export interface Assign {
  'rank'?: (number);
  'topology'?: (_coxswain_v1_Topology | null);
  'planHash'?: (string);
  'kvBlocks'?: (number);
  'slotsMax'?: (number);
  'stepRowsMax'?: (number);
  'threads'?: (number);
  'shareCores'?: (boolean);
  'heartbeatAddress'?: (string);
  'transport'?: (string);
  'session'?: (string);
}

export interface Assign__Output {
  'rank': (number);
  'topology': (_coxswain_v1_Topology__Output | null);
  'planHash': (string);
  'kvBlocks': (number);
  'slotsMax': (number);
  'stepRowsMax': (number);
  'threads': (number);
  'shareCores': (boolean);
  'heartbeatAddress': (string);
  'transport': (string);
  'session': (string);
}
