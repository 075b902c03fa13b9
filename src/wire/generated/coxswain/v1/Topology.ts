// Original file: proto/coxswain/v1/control.proto


export interface Topology {
  'split'?: (number | string)[];
  'pp'?: (number);
  'layerFirst'?: (number)[];
  'layerLast'?: (number)[];
  'kvType'?: (string);
  'exact'?: (boolean);
  'context'?: (number);
}

export interface Topology__Output {
  'split': (number)[];
  'pp': (number);
  'layerFirst': (number)[];
  'layerLast': (number)[];
  'kvType': (string);
  'exact': (boolean);
  'context': (number);
}
