import { h, icon, iconButton } from "../dom.js";
import { fileSize } from "../text/size.js";

const MAX_FILES = 10;
const MAX_FILE_BYTES = 100 * 1024 ** 2;

/** The files that the next message shares: chosen with the button, pasted, or dropped. */
export class Attachments {
  #files = [];
  #changed;
  #refuse;
  #focus;

  /** `changed()` is called after every change, `refuse(sentences)` with the reasons against added files, `focus()` after a choice. */
  constructor({ changed, refuse, focus }) {
    this.#changed = changed;
    this.#refuse = refuse;
    this.#focus = focus;
    this.element = h("ul", { class: "attachments", "aria-label": "Files to send", testid: "attachments", hidden: true });
    this.input = h("input", { type: "file", multiple: true, hidden: true, testid: "file-input", onchange: () => this.#chosen() });
    this.button = iconButton("clip", "Attach files", () => this.input.click(), { "data-testid": "attach" });
  }

  get isEmpty() {
    return this.#files.length === 0;
  }

  add(files) {
    const problems = [];
    for (const file of files) {
      const problem = this.#problemOf(file);
      if (problem) problems.push(problem);
      else this.#files.push(file);
    }
    this.#refuse(problems.join(" "));
    this.#show();
  }

  /** Return the files, and keep none. */
  take() {
    const files = this.#files;
    this.#files = [];
    this.#show();
    return files;
  }

  #problemOf(file) {
    if (this.#files.length === MAX_FILES) return `A message has at most ${MAX_FILES} files: send ${file.name} with another one.`;
    if (file.size > MAX_FILE_BYTES) return `${file.name} has ${fileSize(file.size)}: a file may have at most ${fileSize(MAX_FILE_BYTES)} here.`;
    if (!file.size) return `${file.name} is empty, or a folder: choose another file.`;
    return null;
  }

  #chosen() {
    this.add(this.input.files);
    this.input.value = "";
    this.#focus();
  }

  #remove(file) {
    this.#files = this.#files.filter((each) => each !== file);
    this.#show();
    this.#focus();
  }

  #show() {
    const row = (file) => h("li", {}, icon("file"), h("span", { class: "name" }, file.name), h("small", {}, fileSize(file.size)), iconButton("close", `Remove ${file.name}`, () => this.#remove(file)));
    this.element.replaceChildren(...this.#files.map(row));
    this.element.hidden = this.isEmpty;
    this.#changed();
  }
}
