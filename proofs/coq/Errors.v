(** Proofs of Statements/Errors.v. *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From LAI.Statements Require Import Networks Laws Errors.
From LAI Require Import Vectors Variance.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Uncorrelated.
Variables (R : realFieldType) (W : finType) (P : law R W).
Implicit Types X Y : W -> R.

Lemma mean_sqr X : mean P (fun w => X w ^+ 2) = var P X + mean P X ^+ 2.
Proof.
set u := mean P X.
have -> : var P X = mean P (fun w => 1 * X w ^+ 2 + (- (2%:R * u) * X w + u ^+ 2)).
  by apply: eq_mean => w; rewrite -/u; ring.
by rewrite mean_lin mean_lin mean_const -/u; ring.
Qed.

Variables (m : nat) (X : 'I_m -> W -> R).
Hypothesis free : uncorrelated P X.

Lemma cov_with k (a : 'I_m -> R) : cov P (X k) (fun w => \sum_i a i * X i w) = a k * var P (X k).
Proof.
rewrite covC cov_suml (bigD1 k) //= big1 ?addr0 // => i ik.
by rewrite free // mulr0.
Qed.
Lemma var_weighted (a : 'I_m -> R) : var P (fun w => \sum_i a i * X i w) = \sum_i a i ^+ 2 * var P (X i).
Proof. by rewrite /var cov_suml; apply: eq_bigr => i _; rewrite cov_with mulrA expr2. Qed.
(* A variable minus a weighted sum of all. *)
Lemma var_off k (a : 'I_m -> R) : var P (fun w => X k w - \sum_i a i * X i w)
  = var P (X k) - 2%:R * a k * var P (X k) + \sum_i a i ^+ 2 * var P (X i).
Proof.
rewrite (@eq_var _ _ _ _ (fun w => -1 * (\sum_i a i * X i w) + X k w)) => [|w]; last by rewrite mulN1r addrC.
by rewrite var_add covC cov_with var_weighted; ring.
Qed.
Lemma mean_off k (a : 'I_m -> R) : mean P (fun w => X k w - \sum_i a i * X i w)
  = mean P (X k) - \sum_i a i * mean P (X i).
Proof.
rewrite (@eq_mean _ _ _ _ (fun w => -1 * (\sum_i a i * X i w) + X k w)) => [|w]; last by rewrite mulN1r addrC.
rewrite mean_lin mean_sum mulN1r addrC; congr (_ - _); apply: eq_bigr => i _; exact: meanZ.
Qed.
End Uncorrelated.

Theorem part_variance : Statements.Errors.part_variance.
Proof.
move=> R W P m size part mu sigma m1 size0 free moments.
set n := (\sum_k size k)%N.
have nE : n%:R = \sum_k (size k)%:R :> R by rewrite /n natr_sum.
have n0 : n%:R != 0 :> R.
  rewrite pnatr_eq0 -lt0n /n (bigD1 (Ordinal m1)) //= addn_gt0 size0 //.
have s0 i : (size i)%:R != 0 :> R by rewrite pnatr_eq0 -lt0n.
have m0 : m%:R - 1 != 0 :> R by rewrite subr_eq0 (eqr_nat _ m 1) gtn_eqF.
have restE i : rest size part i =1 (fun w => part i w - \sum_k (size i)%:R / n%:R * part k w).
  by move=> w; rewrite /rest /score mulr_sumr.
have total (c : R) : \sum_k c * ((size k)%:R * sigma ^+ 2) = c * n%:R * sigma ^+ 2.
  by rewrite -mulr_sumr -mulr_suml nE mulrA.
have vr i : var P (rest size part i) = (size i)%:R * sigma ^+ 2 * (1 - (size i)%:R / n%:R).
  rewrite (eq_var _ (restE i)) (var_off free) (moments i).2.
  under eq_bigr do rewrite (moments _).2.
  by rewrite total; field.
have mr i : mean P (rest size part i) = 0.
  rewrite (eq_mean _ (restE i)) mean_off (moments i).1.
  under eq_bigr do rewrite (moments _).1.
  by rewrite -mulr_sumr -mulr_suml -nE; field.
split=> [|i].
  rewrite (@eq_mean _ _ _ _ (fun w => (m%:R - 1)^-1 * \sum_i (size i)%:R^-1 * rest size part i w ^+ 2)) =>
    [|w].
    rewrite meanZ mean_sum.
    rewrite (eq_bigr (fun i => sigma ^+ 2 - (size i)%:R * (sigma ^+ 2 / n%:R))) => [|i _].
      by rewrite sumrB -mulr_suml -nE sumr_const card_ord -mulr_natl; field; rewrite n0.
    by rewrite meanZ mean_sqr mr vr expr0n addr0; field; rewrite n0 s0.
  by rewrite /spread mulrC; congr (_ * _); apply: eq_bigr => k _; rewrite mulrC.
have scoreE : score part =1 (fun w => \sum_k 1 * part k w).
  by move=> w; apply: eq_bigr => k _; rewrite mul1r.
rewrite covC (@eq_cov _ _ _ _ (fun w => - ((size i)%:R / n%:R) * (\sum_k 1 * part k w) + part i w) _ _ _
  scoreE).
  rewrite cov_lin (cov_with free) -/(var _ _) (var_weighted free).
  under eq_bigr do rewrite (moments _).2 expr1n.
  by rewrite total (moments i).2; field.
by move=> w; rewrite restE -mulr_sumr -scoreE addrC mulNr.
Qed.

Theorem contrast_variance : Statements.Errors.contrast_variance.
Proof.
move=> R W P K m v k [free vE].
have K0 : K%:R != 0 :> R by rewrite pnatr_eq0; case: K k m v free vE => // -[].
rewrite (@eq_var _ _ _ _ (fun w => m k w - \sum_i 1 / K%:R * m i w)) => [|w]; last by rewrite mulr_sumr.
rewrite (var_off free) vE.
have -> : \sum_i (1 / K%:R) ^+ 2 * var P (m i) = (1 / K%:R) ^+ 2 * \sum_i v i.
  by rewrite mulr_sumr; apply: eq_bigr => i _; rewrite vE.
by field.
Qed.

Theorem contrast_shrinkage : Statements.Errors.contrast_shrinkage.
Proof.
move=> R W P c e t v [mc vc] [me ve v0 ce] error x.
have t0 : 0 <= t by rewrite -vc var_ge0.
have tv : 0 < t + v by rewrite ltr_paddl.
have tv0 : t + v != 0 by rewrite gt_eqF.
have -> : error x = t * v / (t + v) + (t + v) * (x - t / (t + v)) ^+ 2.
  rewrite /error (@eq_mean _ _ _ _ (fun w => ((1 - x) * c w + - x * e w) ^+ 2)) => [|w]; last by ring.
  rewrite mean_sqr var_add mean_lin meanZ mc me varZ vc ve covC covZl covC ce.
  by field.
split; first by rewrite ler_addl mulr_ge0 ?sqr_ge0 // ltW.
by rewrite addrC -subr_eq0 addrK mulf_eq0 (negPf tv0) /= sqrf_eq0 subr_eq0.
Qed.

Theorem cochran_q : Statements.Errors.cochran_q.
Proof.
move=> R W P K e m mu K0 [free moments] one.
set p := precision e; set T := \sum_k p k.
have e0 k : e k ^+ 2 != 0 by rewrite sqrf_eq0 gt_eqF //; case: (moments k).
have p0 k : 0 < p k.
  by rewrite /p /precision div1r invr_gt0 lt_def sqr_ge0 e0.
have T0 : T != 0.
  rewrite gt_eqF // /T (bigD1 (Ordinal K0)) //= ltr_spaddl // sumr_ge0 // => i _; exact: ltW.
have pe k : p k * e k ^+ 2 = 1 by rewrite /p /precision div1r mulVf.
pose off k w := m k w - \sum_i p i / T * m i w.
have vo k : var P (off k) = e k ^+ 2 - T^-1.
  rewrite (var_off free) (moments k).2.
  have -> : \sum_i (p i / T) ^+ 2 * var P (m i) = T^-1.
    rewrite (eq_bigr (fun i => p i * (T ^+ 2)^-1)) => [|i _]; first by rewrite -mulr_suml -/T; field.
    by rewrite (moments i).2 -[in RHS](mulr1 (p i)) -(pe i); field.
  have -> : 2%:R * (p k / T) * e k ^+ 2 = 2%:R * (p k * e k ^+ 2) / T by field.
  by rewrite pe; field.
have mo k : mean P (off k) = 0.
  rewrite mean_off one (eq_bigr _ (fun i _ => congr1 _ (one i))) -mulr_suml -mulr_suml -/T divff //.
  by rewrite mul1r subrr.
rewrite (@eq_mean _ _ _ _ (fun w => \sum_k p k * off k w ^+ 2)) => [|w].
  rewrite mean_sum (eq_bigr (fun k => 1 - p k / T)) => [|k _].
    by rewrite sumrB -mulr_suml divff // sumr_const card_ord.
  by rewrite meanZ mean_sqr mo vo expr0n addr0 mulrBr pe.
apply: eq_bigr => k _; rewrite /off /weighted_mean -/p -/T mulr_suml.
by congr (_ * (_ - _) ^+ 2); apply: eq_bigr => i _; rewrite mulrAC.
Qed.

Theorem gradient_noise : Statements.Errors.gradient_noise.
Proof.
move=> R W P n p g G Sigma [free mg vg] n1 q S.
have n0 : n%:R != 0 :> R by rewrite pnatr_eq0 -lt0n ltnW.
have n10 : n%:R - 1 != 0 :> R by rewrite subr_eq0 (eqr_nat _ n 1) gtn_eqF.
have dotcol (x : 'cV[R]_p) : dot x x = \sum_a x a 0 ^+ 2.
  by apply: eq_bigr => a _; rewrite big_ord1 expr2.
have mq : mean P q = n%:R * (\tr Sigma + dot G G).
  rewrite mean_sum mulr_natl -[X in _ *+ X]card_ord -sumr_const; apply: eq_bigr => j _.
  rewrite (eq_mean _ (fun w => dotcol (g j w))) mean_sum dotcol -big_split; apply: eq_bigr => a _ /=.
  by rewrite mean_sqr /var vg mg.
have mS : mean P (fun w => dot (S w) (S w)) = n%:R * \tr Sigma + n%:R ^+ 2 * dot G G.
  rewrite (eq_mean _ (fun w => dotcol (S w))) mean_sum dotcol !mulr_sumr -big_split; apply: eq_bigr => a _ /=.
  rewrite (@eq_mean _ _ _ _ (fun w => (\sum_j 1 * g j w a 0) ^+ 2)) => [|w]; last first.
    by rewrite summxE; congr (_ ^+ 2); apply: eq_bigr => j _; rewrite mul1r.
  rewrite mean_sqr (@var_weighted _ _ _ _ (fun j w => g j w a 0)) => [|j k jk]; last exact: free.
  rewrite mean_sum; congr (_ + _).
    rewrite mulr_natl -[X in _ *+ X]card_ord -sumr_const; apply: eq_bigr => j _.
    by rewrite expr1n mul1r /var vg.
  rewrite (eq_bigr (fun=> G a 0)) => [|j _]; last by rewrite meanZ mg mul1r.
  by rewrite sumr_const card_ord -mulr_natl exprMn.
split.
  rewrite (@eq_mean _ _ _ _ (fun w => (n%:R - 1)^-1 * (- n%:R^-1 * dot (S w) (S w) + q w))) => [|w];
    last by ring.
  by rewrite meanZ mean_lin mq mS; field; rewrite n10 n0.
rewrite (@eq_mean _ _ _ _ (fun w => (n%:R * (n%:R - 1))^-1 * (-1 * q w + dot (S w) (S w)))) => [|w];
  last first.
  by rewrite mulN1r addrC mulrC.
by rewrite meanZ mean_lin mq mS; field; rewrite n10 n0.
Qed.

Section Fieller.
Variables (R : rcfType) (a b c : R).
Implicit Type rho : R.
Local Notation s := (root a b c).
Local Notation q rho := (a * rho ^+ 2 - 2%:R * b * rho + c).
Lemma square_done rho : a * q rho = (a * rho - b) ^+ 2 - (b ^+ 2 - a * c).
Proof. ring. Qed.
Lemma discriminant_ge0 rho : 0 < a -> q rho <= 0 -> a * c <= b ^+ 2.
Proof.
move=> a0 h; have : a * q rho <= 0 by rewrite pmulr_rle0.
by rewrite square_done subr_le0 => /(le_trans (sqr_ge0 _)); rewrite subr_ge0.
Qed.
Lemma root_le x : (s <= `|x|) = (b ^+ 2 - a * c <= x ^+ 2).
Proof.
have [D0|D0] := leP (b ^+ 2 - a * c) 0; first by rewrite /root ler0_sqrtr // normr_ge0 (le_trans D0) ?sqr_ge0.
by rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?sqrtr_ge0 // sqr_sqrtr ?(ltW D0) // real_normK ?num_real.
Qed.
Lemma le_root x : a * c <= b ^+ 2 -> (`|x| <= s) = (x ^+ 2 <= b ^+ 2 - a * c).
Proof.
move=> D0; rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?sqrtr_ge0 // sqr_sqrtr ?subr_ge0 //.
by rewrite real_normK ?num_real.
Qed.
Lemma roots_product : a * c <= b ^+ 2 -> (b - s) * (b + s) = a * c.
Proof.
move=> D0; have s2 : s ^+ 2 = b ^+ 2 - a * c by rewrite sqr_sqrtr ?subr_ge0.
by rewrite -subr_sqr s2 opprB addrC subrK.
Qed.
Lemma same_root : a * c <= b ^+ 2 -> a != 0 -> b + s != 0 -> (b - s) / a = c / (b + s).
Proof. by move=> D0 a0 s0; apply/eqP; rewrite eqr_div // roots_product // mulrC. Qed.
Hypothesis disc : 0 < a -> a * c <= b ^+ 2.
Lemma quadratic_solved rho : (q rho <= 0) = solved a b c rho.
Proof.
rewrite /solved; have [a0|a0|a0] := ltrgtP a 0; last first.
- by rewrite a0 mul0r add0r addrC subr_le0.
- rewrite -(pmulr_rle0 _ a0) square_done subr_le0 -le_root ?disc //.
  by rewrite ler_pdivr_mulr // ler_pdivl_mulr // ler_distl ![rho * a]mulrC.
rewrite -(nmulr_rge0 _ a0) square_done subr_ge0 -root_le ler_normr opprB.
by rewrite ler_ndivl_mulr // ler_ndivr_mulr // !ler_subr_addl ![rho * a]mulrC [a * rho + s]addrC.
Qed.
Lemma quadratic_reported rho : 0 <= rho ->
  (q rho <= 0) = reported a b c rho && ([|| 0 < a, 0 < c | 0 <= b] || solved a b c rho).
Proof.
move=> rho0; rewrite /reported; have [c0|c0] := ltP 0 c; last first.
  have [a0|a0] := ltP 0 a; rewrite /= ?andbT.
    rewrite quadratic_solved /solved a0 andb_idl // => _; apply: le_trans rho0;
      rewrite ler_pdivr_mulr // mul0r.
    rewrite subr_le0 (le_trans (ler_norm b)) // le_root ?disc // ler_addl oppr_ge0.
    by rewrite pmulr_rle0.
  have [b0|b0] := leP 0 b; last by rewrite quadratic_solved.
  rewrite -[X in _ <= X]addr0; apply: ler_add => //; rewrite subr_le0.
  by apply: (@le_trans _ _ 0); [rewrite mulr_le0_ge0 ?sqr_ge0|rewrite !mulr_ge0 ?ler0n].
rewrite orbT andbT quadratic_solved /solved; have [a0|a0|a0] := ltrgtP a 0.
- have D0 : a * c <= b ^+ 2 by apply: le_trans (sqr_ge0 b); rewrite nmulr_rle0 // ltW.
  have bs : `|b| < s.
    rewrite ltNge root_le -ltNge ltr_addl oppr_gt0; by rewrite nmulr_rlt0.
  have [sp sn] : 0 < b + s /\ 0 < s - b.
    by have /ltr_normlP [] := bs; rewrite -subr_gt0 opprK addrC => -> h; rewrite subr_gt0.
  have -> : (b - s) / a = c / (b + s) by apply: same_root; rewrite ?(gt_eqF sp) ?(lt_eqF a0).
  have -> : (rho <= (b + s) / a) = false.
    by apply: lt_geF; apply: lt_le_trans rho0; rewrite pmulr_rlt0 // invr_lt0.
  by rewrite sp /= andbT.
- have D0 := disc a0; have [sp|sn] := ltP 0 (b + s).
    by rewrite /= (_ : (b - s) / a = c / (b + s)) //; apply: same_root; rewrite ?(gt_eqF sp) ?(gt_eqF a0).
  apply/negP => /andP [_]; rewrite ler_pdivl_mulr // => h.
  have := roots_product D0; have -> : b + s = 0.
    by apply/eqP; rewrite eq_le sn (le_trans _ h) // mulr_ge0 // ltW.
  by rewrite mulr0 => /esym /eqP; rewrite gt_eqF // mulr_gt0.
have -> : s = `|b| by rewrite /root a0 mul0r subr0 sqrtr_sqr.
have [b0|b0] := ltP 0 b.
  rewrite gtr0_norm // addr_gt0 //= andbT ler_pdivr_mulr ?addr_gt0 //; congr (_ <= _); ring.
rewrite ler0_norm // subrr ltxx /=; apply: lt_geF; apply: le_lt_trans c0.
by rewrite mulr_le0_ge0 // mulr_ge0_le0 ?ler0n.
Qed.
End Fieller.

Section Samples.
Variables (R : rcfType) (m : nat) (x y : 'I_m -> R).
Lemma sample_cov_ge0 (f : 'I_m -> R) : 0 <= sample_cov f f.
Proof.
rewrite /sample_cov; case: m f => [|k] f; first by rewrite big_ord0 mul0r.
apply: divr_ge0; last by rewrite subr_ge0 (ler_nat _ 1).
by apply: sumr_ge0 => i _; rewrite -expr2 sqr_ge0.
Qed.
Lemma average_off rho : average (fun i => x i - rho * y i) = average x - rho * average y.
Proof. by rewrite /average sumrB -mulr_sumr mulrBl mulrA. Qed.
Lemma near_quadratic t rho : 0 <= t ->
  let off i := x i - rho * y i in
  (`|average off| <= t * Num.sqrt (sample_cov off off / m%:R))
  = ((average y ^+ 2 - t ^+ 2 / m%:R * sample_cov y y) * rho ^+ 2
     - 2%:R * (average x * average y - t ^+ 2 / m%:R * sample_cov x y) * rho
     + (average x ^+ 2 - t ^+ 2 / m%:R * sample_cov x x) <= 0).
Proof.
move=> t0 off.
have cv : sample_cov off off = sample_cov x x - 2%:R * rho * sample_cov x y + rho ^+ 2 * sample_cov y y.
  rewrite /sample_cov; set d := m%:R - 1.
  have -> : \sum_i (off i - average off) * (off i - average off)
      = \sum_i (x i - average x) * (x i - average x)
        - 2%:R * rho * (\sum_i (x i - average x) * (y i - average y))
        + rho ^+ 2 * \sum_i (y i - average y) * (y i - average y).
    rewrite !mulr_sumr -sumrB -big_split; apply: eq_bigr => i _ /=.
    by rewrite average_off /off; ring.
  by rewrite mulrDl mulrBl !mulrA.
have v0 : 0 <= sample_cov off off / m%:R by rewrite divr_ge0 ?sample_cov_ge0 ?ler0n.
rewrite -(@ler_pexpn2r _ 2) ?nnegrE ?mulr_ge0 ?sqrtr_ge0 // exprMn sqr_sqrtr // real_normK ?num_real //.
rewrite -subr_le0; congr (_ <= _); rewrite average_off cv; move: m%:R^-1 => m'; ring.
Qed.
End Samples.

Theorem fieller_interval : Statements.Errors.fieller_interval.
Proof.
move=> R m x y t rho t0 off near a b c.
have nearE : near = (a * rho ^+ 2 - 2%:R * b * rho + c <= 0) by exact: near_quadratic.
have disc : 0 < a -> a * c <= b ^+ 2.
  move=> a0; have y0 : average y != 0.
    apply: contraTneq a0 => y0; rewrite -leNgt /a y0 expr0n add0r oppr_le0.
    by rewrite mulr_ge0 ?sample_cov_ge0 // divr_ge0 ?sqr_ge0 ?ler0n.
  apply: (@discriminant_ge0 _ _ _ _ (average x / average y)) => //.
  rewrite -(near_quadratic x y _ t0) average_off divfK // subrr normr0 mulr_ge0 // sqrtr_ge0 //.
by split=> [||| rho0] //; [rewrite nearE quadratic_solved|apply/implyP|rewrite nearE quadratic_reported].
Qed.

Section Discoveries.
Variables (R : realFieldType) (n : nat) (q : R) (p : 'I_n -> R).
Hypothesis q0 : 0 < q.
Local Notation limit := (limit n q).
Local Notation within := (within q p).
Local Notation dropped := (dropped q p).
Local Notation drops := (drops q p).
Definition harmonic := \sum_(1 <= i < n.+1) 1 / i%:R : R.
Lemma harmonic_ge0 : 0 <= harmonic.
Proof. by apply: sumr_ge0 => i _; rewrite divr_ge0 ?ler01 ?ler0n. Qed.
Lemma limit_le i k : (i <= k)%N -> limit i <= limit k.
Proof.
move=> ik; rewrite /Statements.Errors.limit -!mulrA ler_wpmul2r ?ler_nat // mulr_ge0 ?(ltW q0) //.
by rewrite invr_ge0 mulr_ge0 ?ler0n ?harmonic_ge0.
Qed.
Lemma within_le i k : (i <= k)%N -> within i \subset within k.
Proof. by move=> ik; apply/subsetP => j; rewrite !inE => h; apply: le_trans h (limit_le ik). Qed.
Lemma card_dropped : #|dropped| = drops.
Proof.
have [|k hk kE] := @eq_bigmax_cond _ [pred k : 'I_n.+1 | (k <= #|within k|)%N] (fun k => k : nat).
  by apply/card_gt0P; exists ord0; rewrite inE.
have dE : drops = k by exact: kE.
rewrite /Statements.Errors.dropped dE; apply/eqP; rewrite eqn_leq; apply/andP; split; last exact: hk.
have cn : (#|within k| < n.+1)%N by rewrite ltnS -[X in (_ <= X)%N](card_ord n) max_card.
rewrite -[X in (_ <= X)%N]dE.
apply: (@leq_bigmax_cond _ (fun k : 'I_n.+1 => (k <= #|within k|)%N) (fun k => k : nat) (Ordinal cn)).
by apply: subset_leq_card; apply: within_le; exact: hk.
Qed.
Lemma drops_le : (drops <= n)%N.
Proof. by rewrite -card_dropped -[X in (_ <= X)%N](card_ord n) max_card. Qed.
Lemma telescope a b : (a <= b)%N ->
  \sum_(a <= i < b) (i%:R^-1 - i.+1%:R^-1 : R) = a%:R^-1 - b%:R^-1.
Proof.
move=> ab; have := @telescope_sumr _ a b (fun i => i%:R^-1 : R) ab => h.
by rewrite -[RHS]opprB -h -sumrN; apply: eq_bigr => i _; rewrite opprB.
Qed.
Lemma step_ge0 i : (0 < i)%N -> 0 <= i%:R^-1 - i.+1%:R^-1 :> R.
Proof. by move=> i0; rewrite subr_ge0 lef_pinv ?posrE ?ltr0n // ler_nat. Qed.
Lemma share_le j : (j \in dropped)%:R / (maxn #|dropped| 1)%:R
  <= \sum_(1 <= i < n) (p j <= limit i)%R%:R * (i%:R^-1 - i.+1%:R^-1) + (p j <= limit n)%R%:R / n%:R :> R.
Proof.
have terms a b : (0 < a)%N -> 0 <= \sum_(a <= i < b) (p j <= limit i)%R%:R * (i%:R^-1 - i.+1%:R^-1 : R).
  move=> a0; rewrite big_nat_cond; apply: sumr_ge0 => i /andP [/andP [ai _] _].
  by rewrite mulr_ge0 ?ler0n // step_ge0 // (leq_trans a0).
have [jd|jd] := boolP (j \in dropped); last first.
  by rewrite mul0r addr_ge0 ?terms // mulr_ge0 ?invr_ge0 ?ler0n.
have K0 : (0 < drops)%N by rewrite -card_dropped; apply/card_gt0P; exists j.
have below i : (drops <= i)%N -> p j <= limit i.
  by move=> Ki; apply: le_trans (limit_le Ki); move: jd; rewrite inE.
rewrite card_dropped (maxn_idPl K0) below ?drops_le // (@big_cat_nat _ _ _ drops) ?drops_le //=.
rewrite [X in _ <= _ + X + _](_ : _ = drops%:R^-1 - n%:R^-1).
  have -> : true%:R / n%:R = n%:R^-1 :> R by rewrite mul1r.
  by rewrite -addrA subrK mul1r ler_addr terms.
rewrite -telescope ?drops_le // big_nat_cond [RHS]big_nat_cond; apply: eq_bigr => i /andP [/andP [Ki _] _].
by rewrite below // mul1r.
Qed.
Lemma limits : (0 < n)%N ->
  \sum_(1 <= i < n) limit i * (i%:R^-1 - i.+1%:R^-1) + limit n / n%:R = q / n%:R.
Proof.
move=> n0; have H0 : harmonic != 0.
  rewrite gt_eqF // /harmonic big_ltn // ltr_spaddl ?divr_gt0 ?ltr01 //.
  by apply: sumr_ge0 => i _; rewrite divr_ge0 ?ler01 ?ler0n.
have n1 : n%:R != 0 :> R by rewrite pnatr_eq0 -lt0n.
pose c := q / (n%:R * harmonic).
have limitE i : limit i = i%:R * c by rewrite /Statements.Errors.limit -mulrA.
rewrite limitE mulrAC divff // mul1r.
have -> : \sum_(1 <= i < n) limit i * (i%:R^-1 - i.+1%:R^-1) = c * \sum_(1 <= i < n) 1 / i.+1%:R.
  rewrite mulr_sumr big_nat_cond [RHS]big_nat_cond; apply: eq_bigr => i /andP [/andP [i0 _] _].
  have i1 : i%:R != 0 :> R by rewrite pnatr_eq0 -lt0n.
  have i2 : i.+1%:R != 0 :> R by rewrite pnatr_eq0.
  have sum (x y : R) : x != 0 -> y != 0 -> x * c * (x^-1 - y^-1) = c * ((y - x) / y) by move=> x0 y0; field;
    rewrite x0 y0.
  rewrite limitE sum //.
  by rewrite -natrB // subSnn.
have hE : harmonic = 1 + \sum_(1 <= i < n) 1 / i.+1%:R by rewrite /harmonic big_ltn // divr1 big_add1.
rewrite -[X in _ + X]mulr1 -mulrDr [X in c * X]addrC -hE /c.
by field; rewrite n1 H0.
Qed.
End Discoveries.

Theorem false_discovery_rate : Statements.Errors.false_discovery_rate.
Proof.
move=> R W P n p harmless q q0 uniform; split=> [w|]; first exact: card_dropped.
have cardE (D : {set 'I_n}) : #|D :&: harmless|%:R = \sum_(j in harmless) (j \in D)%:R :> R.
  rewrite -sum1_card natr_sum (eq_bigl (fun j => (j \in harmless) && (j \in D))) => [|j].
    by rewrite big_mkcondr; apply: eq_bigr => j _; case: (j \in D).
  by rewrite inE andbC.
set share := fun j w => (j \in dropped q (p^~ w))%:R / (maxn #|dropped q (p^~ w)| 1)%:R : R.
rewrite (@eq_mean _ _ _ _ (fun w => \sum_(j in harmless) share j w)) => [|w].
  have -> : mean P (fun w => \sum_(j in harmless) share j w) = \sum_(j in harmless) mean P (share j).
    by rewrite /mean exchange_big; apply: eq_bigr => w _; rewrite mulr_sumr.
  apply: (@le_trans _ _ (\sum_(j in harmless) q / n%:R)); last first.
    by rewrite sumr_const -mulr_natl mulrA mulrAC.
  apply: ler_sum => j hj; have n0 : (0 < n)%N by apply: leq_ltn_trans (ltn_ord j).
  rewrite -(limits q n0).
  have chance x : 0 <= x -> mean P (fun w => (p j w <= x)%R%:R) <= x.
    move=> x0; apply: le_trans (uniform j x hj x0); rewrite /mean [X in _ <= X]big_mkcond.
    by apply: ler_sum => w _; case: ifP; rewrite ?mulr1 ?mulr0.
  have limit0 i : 0 <= limit n q i.
    by rewrite divr_ge0 ?mulr_ge0 ?ler0n ?(ltW q0) ?harmonic_ge0.
  apply: (@le_trans _ _
    (mean P (fun w => \sum_(1 <= i < n) (p j w <= limit n q i)%R%:R * (i%:R^-1 - i.+1%:R^-1)
      + (p j w <= limit n q n)%R%:R / n%:R))).
    apply: ler_sum => w _; rewrite ler_wpmul2l ?prob_ge0 //; exact: share_le.
  rewrite (@eq_mean _ _ _ _ (fun w =>
    1 * (\sum_(1 <= i < n) (i%:R^-1 - i.+1%:R^-1) * (p j w <= limit n q i)%R%:R)
      + n%:R^-1 * (p j w <= limit n q n)%R%:R)) => [|w].
    rewrite mean_lin mul1r mean_sum meanZ [limit n q n / _]mulrC ler_add //.
      rewrite big_nat_cond [X in _ <= X]big_nat_cond; apply: ler_sum => i /andP [/andP [i0 _] _].
      by rewrite meanZ mulrC ler_wpmul2r ?step_ge0 ?chance.
    by rewrite ler_wpmul2l ?invr_ge0 ?ler0n ?chance.
  by rewrite mul1r [in RHS]mulrC; congr (_ + _); apply: eq_bigr => i _; rewrite mulrC.
by rewrite cardE mulr_suml.
Qed.
