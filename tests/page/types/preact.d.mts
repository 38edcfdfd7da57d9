// What the page uses of Preact, for the check of types. Attributes and children are not checked: tests see what they do.

export type Child = unknown;

export function h(type: string | ((props: any) => unknown) | (new (props: any) => Component), props?: object | null, ...children: Child[]): object;
export function render(children: Child, parent: Element | null): void;

export class Component<Props = any, State = any> {
  constructor(props?: Props);
  props: Props;
  state: State;
  setState(change: Partial<State>): void;
  componentDidMount?(): void;
  componentWillUnmount?(): void;
  render(props: Props, state: State): unknown;
}
