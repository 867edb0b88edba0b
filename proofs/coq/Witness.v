(** What a witness of a statement is, computed from the statement.

    `witness S` is the type of a witness of the statement S: that over every field there are the things that S
    speaks of, such that all that S assumes holds of them; it is True where S assumes nothing. None is
    degenerate: numbers of samples, layers and widths are at least 2, no vector or matrix is zero, and every
    outcome of a law is possible. What a part of the conclusion assumes by itself has a witness of its own. A
    field's structure is not chosen but given, and so is that it is Archimedean. *)
From mathcomp Require Import all_ssreflect all_algebra.
From LAI.Statements Require Import Networks Laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Parts with witnesses of their own, until all that stands before them is said of each. *)
Definition each (A B : Prop) := A /\ B.

(* What keeps x, of type A, from being degenerate. *)
Ltac proper A x :=
  lazymatch eval hnf in A with
  | nat => constr:(is_true (1 < x)%N)
  | matrix _ _ _ => constr:(is_true (x != 0))
  | trace _ _ => constr:(forall l, is_true (act x l != 0) /\ is_true (grad x l != 0))
  | law _ _ => constr:(forall w, is_true (0 < prob x w))
  | finType => constr:(is_true (1 < #|x|)%N)
  | forall i : ?I, @?B i =>
      lazymatch eval hnf in I with
      | nat => family I B x
      | ordinal _ => family I B x
      | _ => constr:(True)
      end
  | _ => constr:(True)
  end
with family I B x :=
  let k := fresh in
  let every := constr:(fun k : I => ltac:(
    let t := eval cbv beta in (B k) in let y := constr:(x k) in let p := proper t y in exact p)) in
  lazymatch every with
  | fun _ => True => constr:(True)
  | fun i => @?p i => let t := eval cbv beta in (forall i : I, p i) in constr:(t)
  end.

(* Is A the structure of a field, or what all of S is said under? *)
Ltac given A :=
  lazymatch A with
  | ringType => constr:(true) | comRingType => constr:(true) | fieldType => constr:(true)
  | numDomainType => constr:(true) | realDomainType => constr:(true) | numFieldType => constr:(true)
  | realFieldType => constr:(true) | rcfType => constr:(true)
  | Num.archimedean_axiom _ => constr:(true)
  | _ => constr:(false)
  end.

(* Is there something of type A, whatever the numbers and the sets of outcomes are that it names? *)
Ltac inhabited A :=
  match A with
  | Finite.sort ?W => let _ := match A with _ => is_var W end in constr:(true)
  | _ =>
  lazymatch eval hnf in A with
  | nat => constr:(true) | bool => constr:(true) | Type => constr:(true) | trace _ _ => constr:(true)
  | finType => constr:(true) | eqType => constr:(true)
  | ordinal ?n => lazymatch n with S _ => constr:(true) | _ => named n end
  | law _ ?W => named W
  | forall i : ?I, @?B i =>
      let every := constr:(fun i : I => ltac:(let t := eval cbv beta in (B i) in let r := inhabited t in exact r)) in
      lazymatch every with fun _ => true => constr:(true) | _ => constr:(false) end
  | _ => match A with _ => let zero := constr:(0 : A) in constr:(true) | _ => constr:(false) end
  end
  end
with named n := match n with _ => let _ := match n with _ => is_var n end in constr:(true) | _ => constr:(false) end.

(* There is an x of type A with p and B; each part of B has its own. *)
Ltac exist A p B :=
  lazymatch B with
  | fun x => each (@?U x) (@?V x) => let u := exist A p U in let v := exist A p V in constr:(each u v)
  | fun _ => ?b => lazymatch type of A with
                   | Prop => lazymatch b with True => A | _ => constr:(A /\ b) end
                   | _ => let some := inhabited A in
                          lazymatch some with true => b | _ => constr:(exists x : A, b) end
                   end
  | _ => lazymatch p with
         | fun _ => True => constr:(exists x : A, B x)
         | _ => constr:(exists x : A, p x /\ B x)
         end
  end.

Ltac both p q :=
  lazymatch p with
  | True => q
  | _ => lazymatch q with True => p | _ => constr:(each p q) end
  end.

Ltac satisfied S :=
  lazymatch eval cbv beta zeta in S with
  | and ?P ?Q => let p := satisfied P in let q := satisfied Q in both p q
  | and3 ?P ?Q ?S => satisfied (P /\ (Q /\ S))
  | and4 ?P ?Q ?S ?T => satisfied (P /\ (Q /\ (S /\ T)))
  | and5 ?P ?Q ?S ?T ?U => satisfied (P /\ (Q /\ (S /\ (T /\ U))))
  | ex ?P => some P
  | ex2 ?P ?Q => some (fun x => P x /\ Q x)
  | forall x : ?A, @?B x => bound A B
  | fun x : ?A => @?B x => bound A B
  | _ => constr:(True)
  end
with bound A B :=
  let v := fresh in
  let body := constr:(fun v : A => ltac:(
    let t := eval cbv beta in (B v) in let w := satisfied t in let w := eval cbv beta in w in exact w)) in
  let is_given := given A in
  lazymatch is_given with
  | true => lazymatch body with
            | fun x => each (@?U x) (@?V x) => constr:(each (forall x : A, U x) (forall x : A, V x))
            | fun _ => True => constr:(True)
            | _ => let t := eval cbv beta in (forall v : A, body v) in constr:(t)
            end
  | false =>
      let p := constr:(fun v : A => ltac:(let p := proper A v in exact p)) in
      exist A p body
  end
(* What is said of something that a statement finds. *)
with some P :=
  lazymatch eval cbv beta in P with
  | fun x : ?A => @?B x =>
      let v := fresh in
      let body := constr:(fun v : A => ltac:(
        let t := eval cbv beta in (B v) in let w := satisfied t in let w := eval cbv beta in w in exact w)) in
      lazymatch body with
      | fun _ => True => constr:(True)
      | fun x => each (@?U x) (@?V x) => constr:(each (exists x : A, U x) (exists x : A, V x))
      | _ => constr:(exists x : A, body x)
      end
  end.

(* In a term, for a statement by its name. *)
Ltac witness S := let t := eval red in S in let w := satisfied t in let w :=
  eval cbv beta delta [each] in w in exact w.

(* Say of a statement without a witness whether it needs one. *)
Ltac assumes S :=
  let t := eval red in S in let w := satisfied t in
  lazymatch w with True => idtac "assumes nothing" | _ => idtac "no witness" end.

(* Name the definitions that assume something of what S says. *)
Ltac concludes S :=
  lazymatch eval cbv beta zeta in S with
  | and ?P ?Q => concludes P; concludes Q
  | and3 ?P ?Q ?S => concludes P; concludes Q; concludes S
  | and4 ?P ?Q ?S ?T => concludes P; concludes Q; concludes S; concludes T
  | and5 ?P ?Q ?S ?T ?U => concludes P; concludes Q; concludes S; concludes T; concludes U
  | ex ?P => concludes P
  | ex2 ?P ?Q => concludes P; concludes Q
  | not _ => idtac
  | forall x : ?A, @?B x => beneath A B
  | fun x : ?A => @?B x => beneath A B
  | ?t => let said := eval hnf in t in
          lazymatch said with
          | forall x : _, _ => let name := head t in idtac "concludes" name
          | _ => idtac
          end
  end
with beneath A B :=
  let v := fresh in assert (forall v : A, True); [intro v; let t := eval cbv beta in (B v) in concludes t; exact I|]
with head t := lazymatch t with (?f _) => head f | _ => t end.
